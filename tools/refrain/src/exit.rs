//! Exit codes, and which error gets which. One table; `--help` and the tests expand from it.

use crate::bench::amend::ReportError;
use refrain_golden::{ArchiveError, RecordError, RegistryError};
use refrain_planner::{
    FillError, LoadError, PlanError, durable::WriteError, lowering::LowerError,
    machine::MachineError, source::ReadError,
};
use refrain_planner::{container::ContainerError, tokenizer::TokenizerError};
use refrain_recorder::{CpuRunError, InstanceError, SourceError, file::TapeFileError};
use refrain_replay::prove::{ProofError, ProveError};
use refrain_replay::{Code, OpenError, Poisoned, Refusal, SessionError, StageError};
use std::io;

macro_rules! exits {
    ($( $name:ident $number:literal $meaning:literal; )*) => {
        /// How a command ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Exit {
            $( #[doc = $meaning] $name, )*
        }
        impl Exit {
            /// Every code, ascending.
            pub const ALL: &[Self] = &[ $( Self::$name, )* ];
            /// The number the process exits with.
            pub const fn number(self) -> u8 {
                match self { $( Self::$name => $number, )* }
            }
            /// One line for the help text.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$name => $meaning, )* }
            }
        }
    };
}

exits! {
    Ok 0 "success";
    Failure 1 "failure";
    Usage 2 "usage: an argument is missing, unknown or out of range";
    Data 65 "bad data: a model, plan, tape, profile or prompt cannot be used";
    NoInput 66 "an input file does not exist";
    NoDevice 69 "the device is not there or not free: library, driver, rights, card or another process";
    Bug 70 "an internal contradiction: please report it";
    Io 74 "a file could not be read or written";
    NotStationary 75 "a benchmark did not become stationary, so its speeds may not be quoted";
    Mismatch 76 "identity mismatch: a model or plan is not the one it is compared with";
    Refused 77 "refused: a reason code RFxxx follows (`refrain explain RFxxx`)";
    Differs 80 "results differ from eager execution";
}

/// An error of the command line itself.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file that does not exist.
    #[error("{path}: no such file; check the path")]
    NoInput {
        /// As given.
        path: String,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// As given.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Not a regular file.
    #[error("{path} is {kind}; give the path of a file")]
    NotAFile {
        /// As given.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// Several files may be the model of a plan.
    #[error("several files may be the model of {plan}: {names}; name it with --model-file")]
    ModelAmbiguous {
        /// Plan file.
        plan: String,
        /// The files.
        names: String,
    },
    /// A file that is of another kind than the command takes.
    #[error("{path} is a {found}, this command takes {takes}")]
    Kind {
        /// As given.
        path: String,
        /// What it is.
        found: &'static str,
        /// What is taken.
        takes: &'static str,
    },
    /// The model's numbers are not finite.
    #[error(
        "no logit was comparable (NaN or -inf) after {tokens} tokens: the weights are damaged, or report it"
    )]
    NotFinite {
        /// Tokens generated before.
        tokens: usize,
    },
    /// A file longer than anything it could be.
    #[error("{path} is longer than {limit} bytes, the most that is read; check the file")]
    TooLong {
        /// As given.
        path: String,
        /// Bytes.
        limit: u64,
    },
    /// A prompt that cannot be used.
    #[error("{0}")]
    Prompt(String),
    /// A fault script that cannot be used.
    #[error("{path}: {what}")]
    Script {
        /// As given.
        path: String,
        /// Why, and what to write.
        what: String,
    },
    /// Strict mode found something.
    #[error(
        "strict mode has {count} different reports, printed above: the tokens may be right, the form is not safe"
    )]
    Reported {
        /// Different reports.
        count: u64,
    },
    /// An argument that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The model of a plan was not found.
    #[error("no model of {bytes} bytes lies beside {plan}; name it with --model-file")]
    ModelNotFound {
        /// Plan file.
        plan: String,
        /// Length of the model by the plan.
        bytes: u64,
    },
    /// Two plan choices that exclude each other.
    #[error("{path} is a plan: --{flag} was fixed when it was made; leave it out or plan again")]
    PlanFixes {
        /// Plan file.
        path: String,
        /// The flag.
        flag: &'static str,
    },
    /// Words that are no whole packets, or that the linter rejects.
    #[error("{0}")]
    Packets(String),
    /// Two plans of different identity.
    #[error("{first} and {second} differ in {layers}")]
    PlansDiffer {
        /// One plan.
        first: String,
        /// The other.
        second: String,
        /// Layers of identity, separated by commas.
        layers: String,
    },
    /// A benchmark whose arms drift or scatter.
    #[error("not stationary: {0}; run it on an idle machine, or with longer rows")]
    NotStationary(String),
    /// A benchmark that proves nothing about the arm it names.
    #[error("the benchmark is not valid ({kind}): {text}; the report has every row")]
    BenchInvalid {
        /// Kind of failure as in the report.
        kind: String,
        /// Where, and both values.
        text: String,
    },
    /// A fresh process that gave no report.
    #[error("fresh process {process} gave no report (exit code {code:?}): {said}")]
    Process {
        /// Its number.
        process: usize,
        /// Its exit code.
        code: Option<i32>,
        /// What it wrote to stderr.
        said: String,
    },
    /// Sealed records that do not hold.
    #[error("{failed} of {all} records do not hold")]
    GoldenDiffers {
        /// How many.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// A record and what belongs to it do not fit together.
    #[error("{0}")]
    Golden(String),
    /// Another process works on the device that is to be measured.
    #[error("{device} is held by {holder}; measure when it is idle")]
    DeviceHeld {
        /// As given.
        device: String,
        /// Who.
        holder: String,
    },
    /// Replay and eager execution differ.
    #[error("retained and eager execution differ: {0}; do not use this form, and report it")]
    Differs(String),
}

/// The exit code of an error, by the first cause that says one.
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(classify).unwrap_or(Exit::Failure)
}

/// The refusal behind an error, if its exit code is [`Exit::Refused`].
pub fn refusal_of(error: &anyhow::Error) -> Option<Refusal> {
    if code_of(error) != Exit::Refused {
        return None;
    }
    error.chain().find_map(|cause| {
        let session = cause
            .downcast_ref::<SessionError>()
            .and_then(SessionError::refusal);
        let placement = || match cause.downcast_ref::<PlanError>()? {
            PlanError::Placement(error) => Some(Refusal::new(Code::of_placement(error)?, error)),
            _ => None,
        };
        let poisoned = || cause.downcast_ref::<Poisoned>()?.error.refusal();
        let proof = || cause.downcast_ref::<ProveError>()?.refusal();
        let cpu = || match cause.downcast_ref::<OpenError>()? {
            OpenError::Cpu(refusal) => Some(refusal.clone()),
            _ => None,
        };
        session
            .or_else(placement)
            .or_else(poisoned)
            .or_else(proof)
            .or_else(cpu)
            .or_else(|| cause.downcast_ref::<Refusal>().cloned())
    })
}

fn classify(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<CliError>() {
        return Some(of_cli(error));
    }
    if let Some(error) = cause.downcast_ref::<PlanError>() {
        return Some(of_plan(error));
    }
    if let Some(error) = cause.downcast_ref::<ReadError>() {
        return Some(of_read(error));
    }
    if let Some(error) = cause.downcast_ref::<OpenError>() {
        return Some(match error {
            OpenError::Cpu(_) => Exit::Refused,
            error if error.is_no_device() => Exit::NoDevice,
            _ => Exit::Failure,
        });
    }
    if let Some(error) = cause.downcast_ref::<SessionError>() {
        return Some(of_session(error));
    }
    if let Some(error) = cause.downcast_ref::<CpuRunError>() {
        return Some(match error {
            CpuRunError::Instance(InstanceError::Source(error)) => of_source(error),
            CpuRunError::Instance(_) => Exit::Data,
            _ => Exit::Failure,
        });
    }
    if let Some(error) = cause.downcast_ref::<Poisoned>() {
        return Some(of_stage(&error.error));
    }
    if cause.is::<Refusal>() {
        return Some(Exit::Refused);
    }
    if let Some(error) = cause.downcast_ref::<MachineError>() {
        return Some(match error {
            MachineError::Unknown { .. } => Exit::Usage,
            MachineError::Io { source, .. } => of_io(source),
            _ => Exit::Data,
        });
    }
    if cause.is::<WriteError>() {
        return Some(Exit::Io);
    }
    if cause.is::<LoadError>() || cause.is::<ContainerError>() || cause.is::<TokenizerError>() {
        return Some(Exit::Data);
    }
    of_file(cause).or_else(|| cause.downcast_ref::<SourceError>().map(of_source))
}

/// Of files that this program writes and reads again: tapes, reports, proofs, the registry.
fn of_file(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<TapeFileError>() {
        return Some(match error {
            TapeFileError::Io { source, .. } => of_io(source),
            TapeFileError::Write(_) => Exit::Io,
            _ => Exit::Data,
        });
    }
    if let Some(error) = cause.downcast_ref::<ReportError>() {
        return Some(match error {
            ReportError::Edited { .. } => Exit::Mismatch,
            ReportError::EmptyNote => Exit::Usage,
            _ => Exit::Data,
        });
    }
    if let Some(error) = cause.downcast_ref::<ProveError>() {
        return Some(match error {
            ProveError::Poisoned(poisoned) => of_stage(&poisoned.error),
            error if error.refusal().is_some() => Exit::Refused,
            _ => Exit::Failure,
        });
    }
    if cause.is::<ProofError>() || cause.is::<ArchiveError>() || cause.is::<RecordError>() {
        return Some(Exit::Data);
    }
    if let Some(error) = cause.downcast_ref::<RegistryError>() {
        return Some(match error {
            RegistryError::Io { source, .. } => of_io(source),
            RegistryError::Write(_) => Exit::Io,
            _ => Exit::Data,
        });
    }
    None
}

fn of_cli(error: &CliError) -> Exit {
    match error {
        CliError::NoInput { .. } | CliError::ModelNotFound { .. } => Exit::NoInput,
        CliError::Io { .. } | CliError::NotAFile { .. } => Exit::Io,
        CliError::Kind { .. } | CliError::NotFinite { .. } | CliError::Script { .. } => Exit::Data,
        CliError::Reported { .. } => Exit::Failure,
        CliError::Prompt(_) | CliError::Packets(_) | CliError::TooLong { .. } => Exit::Data,
        CliError::Usage(_) | CliError::PlanFixes { .. } | CliError::ModelAmbiguous { .. } => {
            Exit::Usage
        }
        CliError::PlansDiffer { .. } | CliError::GoldenDiffers { .. } | CliError::Golden(_) => {
            Exit::Mismatch
        }
        CliError::Differs(_) => Exit::Differs,
        CliError::NotStationary(_) => Exit::NotStationary,
        CliError::BenchInvalid { .. } => Exit::Failure,
        // Its own code, where it is one of these.
        CliError::Process { code, .. } => Exit::ALL
            .iter()
            .copied()
            .find(|exit| Some(i32::from(exit.number())) == *code)
            .unwrap_or(Exit::Failure),
        CliError::DeviceHeld { .. } => Exit::NoDevice,
    }
}

fn of_io(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::NotFound {
        Exit::NoInput
    } else {
        Exit::Io
    }
}

fn of_read(error: &ReadError) -> Exit {
    match error.io_kind() {
        Some(io::ErrorKind::NotFound) => Exit::NoInput,
        Some(_) => Exit::Io,
        None => Exit::Data,
    }
}

fn of_plan(error: &PlanError) -> Exit {
    match error {
        PlanError::Read(error) => of_read(error),
        PlanError::Context { .. }
        | PlanError::Bucket { .. }
        | PlanError::BucketOrder { .. }
        | PlanError::Lower(LowerError::UnknownFusion { .. }) => Exit::Usage,
        PlanError::Placement(error) if Code::of_placement(error).is_some() => Exit::Refused,
        PlanError::Placement(_) => Exit::Usage,
        PlanError::Lower(LowerError::NoRow { .. }) => Exit::Bug,
        PlanError::Fill(FillError::Differs { .. }) => Exit::Mismatch,
        PlanError::Check(_) | PlanError::Graph(_) => Exit::Bug,
        _ => Exit::Data,
    }
}

fn of_source(error: &SourceError) -> Exit {
    match error {
        SourceError::Io { source, .. } => of_io(source),
        SourceError::Files(error) => of_read(error),
        SourceError::WeightsAbsent { .. } => Exit::Refused,
        SourceError::Length { .. } | SourceError::Header { .. } | SourceError::Digest { .. } => {
            Exit::Mismatch
        }
        _ => Exit::Data,
    }
}

fn of_session(error: &SessionError) -> Exit {
    match error {
        SessionError::Poisoned(poisoned) => of_stage(&poisoned.error),
        SessionError::Instance(InstanceError::Source(error)) => of_source(error),
        _ if error.refusal().is_some() => Exit::Refused,
        _ => Exit::Failure,
    }
}

fn of_stage(error: &StageError) -> Exit {
    match error {
        StageError::Instance(InstanceError::Source(error)) => of_source(error),
        error if error.code().is_some() => Exit::Refused,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::{CliError, Exit, code_of};

    #[test]
    fn numbers_ascend_and_meanings_are_said() {
        let numbers: Vec<u8> = Exit::ALL.iter().map(|exit| exit.number()).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{numbers:?}"
        );
        assert!(Exit::ALL.iter().all(|exit| !exit.meaning().is_empty()));
    }

    #[test]
    fn each_error_of_the_command_line_has_its_documented_code() {
        let path = || "x".to_owned();
        let rows = [
            (CliError::NoInput { path: path() }, 66),
            (
                CliError::NotAFile {
                    path: path(),
                    kind: "a folder",
                },
                74,
            ),
            (
                CliError::Io {
                    path: path(),
                    source: std::io::ErrorKind::Other.into(),
                },
                74,
            ),
            (CliError::Prompt(path()), 65),
            (
                CliError::Script {
                    path: path(),
                    what: path(),
                },
                65,
            ),
            (CliError::Reported { count: 1 }, 1),
            (CliError::Packets(path()), 65),
            (CliError::NotFinite { tokens: 0 }, 65),
            (CliError::Usage(path()), 2),
            (
                CliError::PlanFixes {
                    path: path(),
                    flag: "kv",
                },
                2,
            ),
            (
                CliError::ModelNotFound {
                    plan: path(),
                    bytes: 1,
                },
                66,
            ),
            (CliError::GoldenDiffers { failed: 1, all: 2 }, 76),
            (CliError::Golden(path()), 76),
            (CliError::Differs(path()), 80),
            (CliError::NotStationary(path()), 75),
            (
                CliError::BenchInvalid {
                    kind: path(),
                    text: path(),
                },
                1,
            ),
            (
                CliError::Process {
                    process: 0,
                    code: Some(77),
                    said: path(),
                },
                77,
            ),
        ];
        for (error, code) in rows {
            let text = error.to_string();
            assert_eq!(code_of(&error.into()).number(), code, "{text}");
        }
    }

    #[test]
    fn a_cause_decides_through_context() {
        let error = anyhow::Error::from(CliError::NoInput { path: "x".into() }).context("outer");
        assert_eq!(code_of(&error), Exit::NoInput);
        assert_eq!(code_of(&anyhow::anyhow!("no type")), Exit::Failure);
    }
}
