//! Ten thousand random hosts: from any start to the best decision, and staying there.
//! By default 400 of them; all with `REFRAIN_LONG=1`.

use refrain_offload::share::{Controller, Form, Kind, Seed};

use crate::host::{Host, Random};

/// Steps in which a controller has to have decided.
const STEPS: u32 = 64;

/// Steps that it is watched for afterwards.
const AFTER: u32 = 1_000;

fn hosts() -> u64 {
    let long = std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1");
    if long { 10_000 } else { 400 }
}

/// How one host ended.
struct Outcome {
    steps: u32,
    share_error: f64,
    wall_loss: f64,
    /// Largest move of the share in use afterwards, whether it ended nearer to the best than it began,
    /// and choices given up.
    moved: f64,
    corrected: bool,
    reopens: u64,
    line: String,
}

/// One in four controllers starts from nothing, the others from a seed that may be anything.
fn start(random: &mut Random, rows: u32) -> Controller {
    if random.within(0.0, 1.0) < 0.25 {
        return Controller::new([]);
    }
    let seed = Seed {
        dtype: "q8_0".into(),
        k: 4096,
        form: Form::Gemv,
        rows,
        kind: random.pick(Kind::ALL),
        share: random.within(0.0, 1.0),
        pcie_ns: None,
        cpu_ns: None,
        split_ns: None,
        spread: 0.0,
    };
    Controller::new([&seed])
}

fn drive(index: u64, noise: f64, timestamps: bool) -> Outcome {
    let mut random = Random(index.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
    let host = Host::random(&mut random, noise);
    let mut controller = start(&mut random, host.rows);
    let mut step = |controller: &mut Controller| {
        let decision = controller.plan(host.rows);
        let mut sample = host.run(&decision, &mut random);
        if !timestamps {
            sample.gpu_ns = None;
        }
        controller.observe(&decision, &sample);
        decision
    };
    let mut steps = 0;
    while controller.choice(host.rows).is_none() && steps < 4 * STEPS {
        step(&mut controller);
        steps += 1;
    }
    let (kind, share) = controller.choice(host.rows).unwrap();
    let gpu_rows = (share * f64::from(host.rows)).round() as u32;
    let gpu_rows = match kind {
        Kind::Pcie => host.rows,
        Kind::Cpu => 0,
        Kind::Split => gpu_rows,
    };
    let (best, best_rows, best_wall) = host.best();
    let quiet_rows = host.quiet().best().1;
    let off = |rows: u32| (f64::from(rows) - f64::from(quiet_rows)).abs() / f64::from(host.rows);
    let wall = host.wall(kind, gpu_rows);
    let (mut moved, mut last) = (0.0_f64, gpu_rows);
    let before = controller.counters().reopens;
    for _ in 0..AFTER {
        let decision = step(&mut controller);
        if decision.probe.is_none() {
            last = decision.gpu_rows;
            moved =
                moved.max((decision.share() - f64::from(gpu_rows) / f64::from(host.rows)).abs());
        }
    }
    Outcome {
        steps,
        share_error: off(gpu_rows),
        wall_loss: wall / best_wall - 1.0,
        moved,
        corrected: off(last) < off(gpu_rows),
        reopens: controller.counters().reopens - before,
        line: format!(
            "host {index}: {kind} {gpu_rows} of {} rows ({wall:.0} ns), best {best} {best_rows} \
             ({best_wall:.0} ns), {steps} steps; walls pcie {:.0} cpu {:.0}; {host:?}",
            host.rows,
            host.wall(Kind::Pcie, host.rows),
            host.wall(Kind::Cpu, 0),
        ),
    }
}

/// What must hold of all hosts, in parts of ten thousand; of moves after the decision there is none.
struct Bounds {
    /// Least that end within 0.02 of the best share.
    share: u64,
    /// Most that end neither there nor within 2 % of the least wall.
    neither: u64,
    /// Largest wall above the least.
    wall: f64,
}

/// Runs all hosts and holds them to the bounds.
fn all(noise: f64, timestamps: bool, bounds: &Bounds) {
    let mut counts = [0_u64; 3];
    let (mut steps, mut worst_steps, mut moved, mut reopens) = (0_u64, 0, 0.0_f64, 0);
    let mut corrections = 0;
    let mut worst = (0.0_f64, String::new());
    let total = hosts();
    for index in 0..total {
        let outcome = drive(index, noise, timestamps);
        let met = match (outcome.share_error <= 0.02, outcome.wall_loss <= 0.02) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        counts[met] += 1;
        steps += u64::from(outcome.steps);
        worst_steps = worst_steps.max(outcome.steps);
        if outcome.moved > 0.02 && outcome.corrected {
            corrections += 1;
        } else {
            moved = moved.max(outcome.moved);
        }
        reopens += outcome.reopens;
        if outcome.wall_loss > worst.0 {
            worst = (outcome.wall_loss, outcome.line);
        }
    }
    println!(
        "{total} hosts, noise {noise}, device times {timestamps}: share within 0.02: {}; only wall within \
         2 %: {}; neither: {}; steps mean {:.1}, most {worst_steps}; afterwards moved at most {moved:.4}, \
         further towards the best {corrections}, reopened {reopens}",
        counts[0],
        counts[1],
        counts[2],
        steps as f64 / total as f64,
    );
    println!("  worst wall: {:.4} above the least; {}", worst.0, worst.1);
    assert!(worst_steps <= STEPS, "{worst_steps} steps");
    assert!(moved <= 0.02, "moved by {moved}");
    // A few hosts more or less decide nothing in the short form.
    assert!(
        (counts[0] + 10) * 10_000 >= bounds.share * total,
        "{counts:?}"
    );
    assert!(
        counts[2] * 10_000 <= bounds.neither * total + 40_000,
        "{counts:?}"
    );
    assert!(worst.0 <= bounds.wall, "{}", worst.0);
}

#[test]
fn without_noise() {
    let bounds = Bounds {
        share: 9_900,
        neither: 10,
        wall: 0.06,
    };
    all(0.0, true, &bounds);
}

#[test]
fn with_noise() {
    let bounds = Bounds {
        share: 9_450,
        neither: 150,
        wall: 0.08,
    };
    all(0.1, true, &bounds);
}

#[test]
fn without_times_of_the_device() {
    let bounds = Bounds {
        share: 9_750,
        neither: 30,
        wall: 0.09,
    };
    all(0.0, false, &bounds);
}
