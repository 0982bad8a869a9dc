//! A report as one SVG picture: every measured row as a point, medians as lines, arms by colour, one
//! panel per context.

use super::judge::name;
use super::report::{Metric, Report};
use std::fmt::{self, Write};

const WIDTH: f64 = 760.0;
const PANEL: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const MARGIN: f64 = 36.0;
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#888888",
];

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The picture.
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_svg(&mut out, report);
    out
}

fn write_svg(out: &mut String, report: &Report) -> fmt::Result {
    let panels = report.settings.contexts.len().max(1) as f64;
    let height = panels * PANEL + MARGIN;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    )?;
    let metric = match report.settings.metric {
        Metric::Wall => "wall us per token",
        Metric::Host => "host-path us per token (software GPU: no GPU time)",
    };
    let title = format!("{}, {metric}, by row", report.machine.device);
    writeln!(out, "<text x=\"{LEFT}\" y=\"18\">{}</text>", escape(&title))?;
    for (index, context) in report.settings.contexts.iter().enumerate() {
        panel(out, report, *context, MARGIN + index as f64 * PANEL)?;
    }
    writeln!(out, "</svg>")
}

fn panel(out: &mut String, report: &Report, context: u32, top: f64) -> fmt::Result {
    let metric = report.settings.metric;
    let lanes: Vec<(usize, Vec<f64>)> = (0..report.arms.len())
        .map(|arm| {
            let series = report.series.iter();
            let own = series.filter(|series| series.arm == arm && series.context == context);
            let rows = own.flat_map(|series| &series.rows);
            (arm, rows.map(|row| row.value(metric)).collect())
        })
        .collect();
    let all = || lanes.iter().flat_map(|lane| &lane.1).copied();
    let top_value = all().fold(0.0, f64::max) * 1.05;
    let count = lanes.iter().map(|lane| lane.1.len()).max().unwrap_or(0);
    if count == 0 || top_value <= 0.0 {
        return Ok(());
    }
    let (bottom, width) = (top + PANEL - MARGIN, WIDTH - LEFT - RIGHT);
    let x = |row: usize| LEFT + width * (row as f64 + 0.5) / count as f64;
    let y = |value: f64| bottom - (PANEL - 1.5 * MARGIN) * value / top_value;
    writeln!(
        out,
        "<path d=\"M{LEFT} {:.1}V{bottom:.1}H{:.1}\" fill=\"none\" stroke=\"#444\"/>",
        y(top_value),
        LEFT + width
    )?;
    writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\">context {context}</text>",
        bottom + 14.0
    )?;
    for value in [0.0, top_value / 2.0, top_value] {
        let (left, height) = (LEFT - 6.0, y(value) + 4.0);
        writeln!(
            out,
            "<text x=\"{left}\" y=\"{height:.1}\" text-anchor=\"end\">{value:.1}</text>"
        )?;
    }
    for (arm, values) in &lanes {
        let colour = COLOURS[arm % COLOURS.len()];
        for (row, value) in values.iter().enumerate() {
            let (x, y) = (x(row), y(*value));
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            )?;
        }
        let outcomes = report.results.iter();
        let mut own = outcomes.filter(|found| found.arm == *arm && found.context == context);
        if let Some(outcome) = own.next() {
            let (level, right) = (y(outcome.us), LEFT + width);
            writeln!(
                out,
                "<path d=\"M{LEFT} {level:.1}H{right:.1}\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>"
            )?;
            let label = format!("{} {:.2}", name(report, *arm), outcome.us);
            let (x, y) = (right + 8.0, top + 14.0 * (*arm as f64 + 1.0));
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>",
                escape(&label)
            )?;
        }
    }
    Ok(())
}
