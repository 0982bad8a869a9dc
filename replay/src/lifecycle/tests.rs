//! Every refusal code is reached by an error of its own kind.

use super::StageError;
use crate::refusal::{Code, TABLE};
use refrain_device::DeviceError;
use refrain_kernels::Dtype;
use refrain_lower::{EncodingError, ImageError, LowerError};
use refrain_packet::kd;
use refrain_packet::launch::EncodeError;
use refrain_planner::placement::PlacementError;
use refrain_planner::plan::Exec;
use refrain_recorder::file::TapeFileError;
use refrain_recorder::reconcile::{StepRef, TapeId};
use refrain_recorder::source::SourceError;
use refrain_recorder::{InstanceError, ReconcileError};

fn refused(reason: kd::Refusal) -> StageError {
    ImageError::Refused {
        symbol: "k".into(),
        reason,
    }
    .into()
}

#[expect(clippy::too_many_lines, reason = "one row per kind of error")]
fn rows() -> Vec<(Code, StageError)> {
    let tape = TapeId {
        executor: 0,
        position: 0,
    };
    let step = || StepRef {
        step: 1,
        name: "s".into(),
    };
    let text = || "x".to_owned();
    let device = || DeviceError::EntryMissing {
        call: "hsa_signal_create",
    };
    let encode = |source| {
        StageError::from(LowerError::Encode {
            step: 0,
            name: text(),
            source,
        })
    };
    vec![
        (Code::NotEligible, StageError::Ineligible(vec![text()])),
        (
            Code::SequenceUnstable,
            ReconcileError::ExtraLaunch {
                tape,
                ordinal: 0,
                symbol: text(),
                before: text(),
            }
            .into(),
        ),
        (
            Code::SequenceUnstable,
            ReconcileError::Swapped {
                tape,
                first: step(),
                second: step(),
            }
            .into(),
        ),
        (
            Code::KernargMoves,
            ReconcileError::PositionDependent {
                step: step(),
                argument: text(),
                offset: 0,
                first_position: 0,
                first: text(),
                second_position: 1,
                second: text(),
            }
            .into(),
        ),
        (
            Code::KernargDiffers,
            ReconcileError::Kernarg {
                tape,
                step: step(),
                argument: text(),
                offset: 0,
                expected: 0,
                found: 1,
            }
            .into(),
        ),
        (
            Code::PointerOutside,
            ReconcileError::PointerOutside {
                tape,
                step: step(),
                argument: text(),
                offset: 0,
                address: 1,
                expected: text(),
            }
            .into(),
        ),
        (
            Code::RingDiffers,
            ReconcileError::Ring {
                tape,
                ordinal: 0,
                what: text(),
            }
            .into(),
        ),
        (
            Code::RecordingUnfinished,
            TapeFileError::Unfinished { have: 1, need: 2 }.into(),
        ),
        (
            Code::RecordingUnfinished,
            ReconcileError::TooFew {
                positions: 1,
                executors: 1,
            }
            .into(),
        ),
        (
            Code::RecordingUnfinished,
            ReconcileError::NotRecorded { tape }.into(),
        ),
        (
            Code::OtherPlan,
            ReconcileError::OtherPlan {
                expected: text(),
                found: text(),
            }
            .into(),
        ),
        (
            Code::FormatVersion,
            TapeFileError::Version { found: 9 }.into(),
        ),
        (
            Code::TargetMismatch,
            InstanceError::Target {
                plan: "gfx1100",
                device: text(),
                found: text(),
            }
            .into(),
        ),
        (
            Code::ModelDiffers,
            InstanceError::from(SourceError::Length {
                name: text(),
                expected: 1,
                found: 2,
            })
            .into(),
        ),
        (
            Code::WeightsAbsent,
            InstanceError::from(SourceError::WeightsAbsent {
                model: text(),
                tensors: 2,
            })
            .into(),
        ),
        (
            Code::ModelDiffers,
            InstanceError::from(SourceError::Header {
                name: text(),
                start: 0,
                bytes: 4,
                expected: text(),
                found: text(),
            })
            .into(),
        ),
        (
            Code::MemoryShort,
            InstanceError::Memory {
                needed: 2,
                available: 1,
                device: text(),
            }
            .into(),
        ),
        (
            Code::ObjectDiffers,
            StageError::ObjectAbsent { symbol: text() },
        ),
        (Code::Scratch, refused(kd::Refusal::Scratch { bytes: 4 })),
        (Code::DynamicStack, refused(kd::Refusal::DynamicStack)),
        (
            Code::HiddenArguments,
            ImageError::HiddenArguments {
                symbol: text(),
                expected: 8,
                found: 264,
            }
            .into(),
        ),
        (Code::RuntimePointer, refused(kd::Refusal::QueuePtr)),
        (Code::RuntimePointer, refused(kd::Refusal::DispatchPtr)),
        (
            Code::Unencodable,
            encode(EncodeError::GroupSize {
                launch: 0,
                size: [2048, 1, 1],
            }),
        ),
        (
            Code::IbTooLong,
            encode(EncodeError::TooLong {
                dwords: 1 << 20,
                limit: 0xF_FFFF,
            }),
        ),
        (
            Code::ReadBack,
            LowerError::ReadBack(EncodingError {
                packet: 0,
                dword: 0,
                step: 0,
                name: text(),
                what: text(),
            })
            .into(),
        ),
        (
            Code::Lint,
            LowerError::Lint {
                first: text(),
                count: 1,
            }
            .into(),
        ),
        (
            Code::Allocation,
            StageError::Allocation {
                what: "queue",
                source: device(),
            },
        ),
        (Code::HostSteps, StageError::HostSteps(text())),
        (
            Code::HostSteps,
            LowerError::Barriers {
                count: 1,
                first: text(),
            }
            .into(),
        ),
        (Code::Handshake, StageError::Handshake(text())),
        (
            Code::HostMemoryShort,
            InstanceError::HostMemory {
                needed: 2,
                available: 1,
            }
            .into(),
        ),
        (
            Code::Unencodable,
            StageError::RingTooSmall {
                packets: 2,
                most: 1,
            },
        ),
    ]
}

/// Refusals that are made as such, by the gate of proofs, transitions, sessions, the registry and the
/// command line; their own tests meet each.
const DIRECT: [Code; 12] = [
    Code::ShareNotPinned,
    Code::NothingSpilled,
    Code::NothingDivided,
    Code::ProofAbsent,
    Code::ProofDiffers,
    Code::ProofFails,
    Code::SealRefused,
    Code::NotPublished,
    Code::Transition,
    Code::BeyondContext,
    Code::ReplayShare,
    Code::CpuRetains,
];

/// Refusals before there is a plan.
fn placement_rows() -> Vec<(Code, PlacementError)> {
    vec![
        (
            Code::SpillUnified,
            PlacementError::Unified {
                spilled: 1,
                machine: "gfx1151".to_owned(),
            },
        ),
        (
            Code::SpillExperts,
            PlacementError::Experts {
                layer: 0,
                experts: 8,
                layers: 4,
            },
        ),
        (
            Code::HostExec,
            PlacementError::HostExec {
                exec: Exec::Cpu,
                tensor: "blk.0.attn_q.weight".to_owned(),
                dtype: Dtype::MQ4_G256,
            },
        ),
        (
            Code::HostActivations,
            PlacementError::HostActivations {
                exec: Exec::Cpu,
                activations: "int8",
            },
        ),
        (
            Code::PinnedShort,
            PlacementError::Pinned {
                needed: 2,
                machine: "gfx1100".to_owned(),
                available: 1,
            },
        ),
    ]
}

#[test]
fn every_code_has_an_error_and_every_error_its_code() {
    let mut rows = rows();
    let absent = DeviceError::EntryMissing {
        call: "hipGraphLaunch",
    };
    rows.push((Code::GraphAbsent, StageError::Capture(absent)));
    for (code, error) in &rows {
        assert_eq!(error.code(), Some(*code), "{error}");
        let refusal = error.refusal().unwrap();
        assert!(
            refusal.to_string().starts_with(&code.to_string()),
            "{refusal}"
        );
        assert!(
            refusal.to_string().contains(&error.to_string()),
            "{refusal}"
        );
    }
    let placements = placement_rows();
    for (code, error) in &placements {
        assert_eq!(Code::of_placement(error), Some(*code), "{error}");
    }
    let planned = |code| placements.iter().any(|(known, _)| *known == code);
    for row in TABLE {
        assert!(
            rows.iter().any(|(code, _)| *code == row.code)
                || planned(row.code)
                || DIRECT.contains(&row.code),
            "{} is never refused",
            row.code
        );
    }
}

#[test]
fn failures_that_say_nothing_about_the_plan_are_no_refusals() {
    let io = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let rows: Vec<StageError> = vec![
        InstanceError::from(SourceError::Io {
            name: "m".into(),
            offset: 0,
            source: io(),
        })
        .into(),
        TapeFileError::Io {
            action: "open",
            path: "t".into(),
            source: io(),
        }
        .into(),
        InstanceError::EmptyPrompt.into(),
    ];
    for error in rows {
        assert_eq!(error.code(), None, "{error}");
    }
}
