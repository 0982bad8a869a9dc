//! The rules of a conformance suite: cases × devices, each with one outcome, and what fails it.
//!
//! `unsupported` (the device does not offer this, or is not there) is kept apart from `expected
//! failure` (it should work and is known not to, with the reason). An expected failure that passes
//! fails the suite, so that no reason outlives its cause. What the cases do is left to
//! `tests/cases/conformance`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The device does not offer what the case is about.
    Unsupported(String),
    /// The device offers it and does it wrong.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What a case returns.
pub type Done = Result<(), Trouble>;

/// Fails a case unless `holds`.
///
/// # Errors
/// [`Trouble::Failed`] with the text.
pub fn ensure(holds: bool, text: impl FnOnce() -> String) -> Done {
    if holds {
        Ok(())
    } else {
        Err(Trouble::Failed(text()))
    }
}

/// Ends a case on a device that does not offer its subject.
///
/// # Errors
/// [`Trouble::Unsupported`], always.
pub fn unsupported(reason: &str) -> Done {
    Err(Trouble::Unsupported(reason.to_owned()))
}

/// One case.
pub struct Case<D> {
    /// Its name, `room/what`.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&D) -> Done,
    /// Devices (by the beginning of their name) on which it is known to fail, and why.
    pub expected_failures: &'static [(&'static str, &'static str)],
}

/// A place in the suite for a device.
pub struct Slot<D> {
    /// Name of the device.
    pub name: String,
    /// Opens it afresh, for one case; an error is the reason why it cannot be tested at all.
    pub open: Box<dyn Fn() -> Result<D, String>>,
}

/// What became of a case on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Pass,
    /// Not offered, and why.
    Unsupported(String),
    /// Failed as announced, and why that was announced.
    ExpectedFailure(String),
    /// Failed.
    Failure(String),
    /// Passed although a failure was announced for this reason; take the announcement back.
    UnexpectedPass(String),
}

impl Outcome {
    /// Whether the suite fails for it.
    pub const fn fails(&self) -> bool {
        matches!(self, Self::Failure(_) | Self::UnexpectedPass(_))
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Unsupported(_) => "unsupported",
            Self::ExpectedFailure(_) => "expected failure",
            Self::Failure(_) => "FAILURE",
            Self::UnexpectedPass(_) => "UNEXPECTED PASS",
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Unsupported(text)
            | Self::ExpectedFailure(text)
            | Self::Failure(text)
            | Self::UnexpectedPass(text) => Some(text),
        }
    }
}

/// All outcomes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Names of the devices.
    pub devices: Vec<String>,
    /// Cases in order, with an outcome per device.
    pub rows: Vec<(&'static str, Vec<Outcome>)>,
}

impl Report {
    /// Whether the suite fails.
    pub fn failed(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.1).any(Outcome::fails)
    }

    /// Number of outcomes per kind: pass, unsupported, expected failure, failure, unexpected pass.
    pub fn counts(&self) -> [usize; 5] {
        let mut counts = [0; 5];
        for outcome in self.rows.iter().flat_map(|row| &row.1) {
            let kind = match outcome {
                Outcome::Pass => 0,
                Outcome::Unsupported(_) => 1,
                Outcome::ExpectedFailure(_) => 2,
                Outcome::Failure(_) => 3,
                Outcome::UnexpectedPass(_) => 4,
            };
            counts[kind] += 1;
        }
        counts
    }
}

impl fmt::Display for Report {
    /// One table, then every text that belongs to an outcome, each once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.0.len())
            .max()
            .unwrap_or(0)
            .max(4);
        let column = |name: &str| name.len().max("expected failure".len());
        write!(f, "{:width$}", "case")?;
        for name in &self.devices {
            write!(f, " | {name:0$}", column(name))?;
        }
        writeln!(f)?;
        let mut texts: Vec<String> = Vec::new();
        for (case, outcomes) in &self.rows {
            write!(f, "{case:width$}")?;
            for (outcome, name) in outcomes.iter().zip(&self.devices) {
                write!(f, " | {:1$}", outcome.word(), column(name))?;
                if let Some(text) = outcome.text() {
                    let of = if outcome.fails() {
                        format!("{case} on {name}")
                    } else {
                        outcome.word().to_owned()
                    };
                    let line = format!("{of}: {text}");
                    if !texts.contains(&line) {
                        texts.push(line);
                    }
                }
            }
            writeln!(f)?;
        }
        for text in texts {
            writeln!(f, "{text}")?;
        }
        let [pass, unsupported, expected, failure, unexpected] = self.counts();
        write!(
            f,
            "{pass} passed, {unsupported} unsupported, {expected} expected failures, {failure} failures, {unexpected} unexpected passes"
        )
    }
}

/// Runs every case on every device, each on a fresh opening. A panic is a failure.
pub fn run<D>(cases: &[Case<D>], devices: &[Slot<D>]) -> Report {
    let mut report = Report {
        devices: devices.iter().map(|slot| slot.name.clone()).collect(),
        rows: Vec::new(),
    };
    for case in cases {
        let outcomes = devices.iter().map(|slot| one(case, slot)).collect();
        report.rows.push((case.name, outcomes));
    }
    report
}

fn one<D>(case: &Case<D>, slot: &Slot<D>) -> Outcome {
    let device = match (slot.open)() {
        Ok(device) => device,
        Err(reason) => return Outcome::Unsupported(reason),
    };
    let result = catch_unwind(AssertUnwindSafe(|| (case.run)(&device)))
        .unwrap_or_else(|panic| Err(Trouble::Failed(panic_text(&*panic))));
    let mut announced = case.expected_failures.iter();
    let announced = announced.find(|row| slot.name.starts_with(row.0));
    let announced = announced.map(|row| row.1.to_owned());
    match (result, announced) {
        (Ok(()), None) => Outcome::Pass,
        (Ok(()), Some(reason)) => Outcome::UnexpectedPass(reason),
        (Err(Trouble::Unsupported(reason)), _) => Outcome::Unsupported(reason),
        (Err(Trouble::Failed(_)), Some(reason)) => Outcome::ExpectedFailure(reason),
        (Err(Trouble::Failed(text)), None) => Outcome::Failure(text),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests {
    use super::{Case, Outcome, Slot, Trouble, ensure, run, unsupported};

    fn slot(name: &str, value: Result<u32, &str>) -> Slot<u32> {
        let value = value.map_err(str::to_owned);
        Slot {
            name: name.to_owned(),
            open: Box::new(move || value.clone()),
        }
    }

    fn case(name: &'static str, run: fn(&u32) -> super::Done) -> Case<u32> {
        Case {
            name,
            run,
            expected_failures: &[],
        }
    }

    fn odd(value: &u32) -> super::Done {
        ensure(value % 2 == 1, || format!("{value} is even"))
    }

    #[test]
    fn every_outcome_is_told_apart() {
        let devices = [
            slot("one", Ok(1)),
            slot("two", Ok(2)),
            slot("gone", Err("not plugged in")),
        ];
        let known = Case {
            expected_failures: &[("tw", "two is even")],
            ..case("known", odd)
        };
        let cases = [
            case("odd", odd),
            known,
            case("absent", |_| unsupported("nobody has it")),
            case("panics", |_| panic!("at the disco")),
        ];
        let report = run(&cases, &devices);
        let gone = Outcome::Unsupported("not plugged in".to_owned());
        let absent = Outcome::Unsupported("nobody has it".to_owned());
        let panic = Outcome::Failure("panicked: at the disco".to_owned());
        let expected = [
            vec![
                Outcome::Pass,
                Outcome::Failure("2 is even".to_owned()),
                gone.clone(),
            ],
            vec![
                Outcome::Pass,
                Outcome::ExpectedFailure("two is even".to_owned()),
                gone.clone(),
            ],
            vec![absent.clone(), absent, gone.clone()],
            vec![panic.clone(), panic, gone],
        ];
        let found: Vec<_> = report.rows.iter().map(|row| row.1.clone()).collect();
        assert_eq!(found, expected);
        assert_eq!(report.counts(), [2, 6, 1, 3, 0]);
        assert!(report.failed());
        let text = report.to_string();
        for words in [
            "odd on two: 2 is even",
            "expected failure: two is even",
            "unsupported: not plugged in",
            "2 passed, 6 unsupported, 1 expected failures, 3 failures, 0 unexpected passes",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    /// The rule that keeps the list of known failures honest.
    #[test]
    fn an_expected_failure_that_passes_fails_the_suite() {
        let fixed = Case {
            expected_failures: &[("one", "was broken once")],
            ..case("odd", odd)
        };
        let report = run(&[fixed], &[slot("one", Ok(1))]);
        let outcome = Outcome::UnexpectedPass("was broken once".to_owned());
        assert_eq!(report.rows[0].1, [outcome]);
        assert!(report.failed());
        assert!(report.to_string().contains("odd on one: was broken once"));
        // What is not offered neither passes nor fails, announced or not.
        let absent = Case {
            expected_failures: &[("one", "was broken once")],
            ..case("absent", |_| unsupported("nobody has it"))
        };
        assert!(!run(&[absent], &[slot("one", Ok(1))]).failed());
    }

    #[test]
    fn errors_become_failures() {
        let trouble = Trouble::from("x".parse::<u32>().unwrap_err());
        assert_eq!(
            trouble,
            Trouble::Failed("invalid digit found in string".to_owned())
        );
    }
}
