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
    /// Largest move of the share in use afterwards, and choices given up.
    moved: f64,
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
    let mut moved: f64 = 0.0;
    let before = controller.counters().reopens;
    for _ in 0..AFTER {
        let decision = step(&mut controller);
        if decision.probe.is_none() {
            moved =
                moved.max((decision.share() - f64::from(gpu_rows) / f64::from(host.rows)).abs());
        }
    }
    Outcome {
        steps,
        share_error: off(gpu_rows),
        wall_loss: wall / best_wall - 1.0,
        moved,
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

/// Runs all hosts, prints the summary; returns how many met the share, only the wall, neither, and
/// how many moved afterwards.
fn all(noise: f64, timestamps: bool) -> [u64; 4] {
    let mut counts = [0; 4];
    let (mut steps, mut worst_steps) = (0_u64, 0);
    let (mut worst_share, mut worst_moved) = (0.0_f64, 0.0_f64);
    let mut worst_wall = (0.0_f64, String::new());
    let mut reopens = 0;
    let total = hosts();
    for index in 0..total {
        let outcome = drive(index, noise, timestamps);
        let slot = if outcome.share_error <= 0.02 {
            worst_share = worst_share.max(outcome.share_error);
            0
        } else if outcome.wall_loss <= 0.02 {
            1
        } else {
            2
        };
        if slot == 2 && std::env::var_os("REFRAIN_SHOW").is_some() {
            println!("  {:.4} {}", outcome.wall_loss, outcome.line);
        }
        counts[slot] += 1;
        counts[3] += u64::from(outcome.moved > 0.02);
        steps += u64::from(outcome.steps);
        worst_steps = worst_steps.max(outcome.steps);
        worst_moved = worst_moved.max(outcome.moved);
        reopens += outcome.reopens;
        if outcome.wall_loss > worst_wall.0 {
            worst_wall = (outcome.wall_loss, outcome.line);
        }
    }
    println!(
        "{total} hosts, noise {noise}, device times {timestamps}: share within 0.02: {} (worst {worst_share:.4}); \
         only wall within 2 %: {}; neither: {}; steps mean {:.1}, most {worst_steps}; afterwards moved \
         more than 0.02: {} (most {worst_moved:.4}), reopened {reopens}",
        counts[0],
        counts[1],
        counts[2],
        steps as f64 / total as f64,
        counts[3],
    );
    println!(
        "  worst wall: {:.4} more than the best, {}",
        worst_wall.0, worst_wall.1
    );
    counts
}

#[test]
fn without_noise() {
    let [_, _, neither, moved] = all(0.0, true);
    assert_eq!((neither, moved), (0, 0));
}

#[test]
fn with_noise() {
    let [_, _, neither, moved] = all(0.1, true);
    assert_eq!((neither, moved), (0, 0));
}

#[test]
fn without_times_of_the_device() {
    let [_, _, neither, moved] = all(0.0, false);
    assert_eq!((neither, moved), (0, 0));
}

#[test]
fn zz_debug() {
    let index: u64 = std::env::var("HOST").unwrap().parse().unwrap();
    let noise: f64 = std::env::var("NOISE").unwrap().parse().unwrap();
    let timed = std::env::var("TIMED").is_ok();
    let mut random = Random(index.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
    let host = Host::random(&mut random, noise);
    let mut controller = start(&mut random, host.rows);
    println!("{:?} {:?}", host.best(), host);
    while controller.choice(host.rows).is_none() {
        let d = controller.plan(host.rows);
        let mut s = host.run(&d, &mut random);
        if !timed {
            s.gpu_ns = None;
        }
        println!(
            "{:?} {} {:.4} {:?} g {:?} c {} j {} w {}",
            d.probe,
            d.kind,
            d.share(),
            host.arms(d.gpu_rows),
            s.gpu_ns,
            s.cpu_ns,
            s.join_ns,
            s.wall_ns
        );
        controller.observe(&d, &s);
    }
    println!("{:?}", controller.choice(host.rows));
}
