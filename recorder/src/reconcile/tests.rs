//! Reconcile over made-up tapes: one row per kind of difference, each with the words it must name.

use super::{ReconcileError, reconcile};
use crate::expected::{Argument, Expectation, ExpectedCopy, ExpectedLaunch};
use crate::tape::{Direction, Entry, Place, Pointer, Recording, RingLaunch, Tape, TapeLaunch};

/// Kernel dispatch, barrier bit, system fences.
const HEADER: u16 = 2 | 1 << 8 | 2 << 9 | 2 << 11;

fn launch(symbol: &str, value: u8, buffer: u32) -> TapeLaunch {
    TapeLaunch {
        symbol: symbol.into(),
        object: [1; 32],
        grid: [4, 1, 1],
        block: [256, 1, 1],
        lds: 0,
        kernarg: vec![0, 0, 0, 0, 0, 0, 0, 0, value, 0, 0, 0, 0, 0, 0, 0],
        pointers: vec![Pointer {
            at: 0,
            place: Place::Region { buffer, offset: 16 },
        }],
    }
}

fn expectation() -> Expectation {
    let launches = ["norm", "gemv", "rope", "norm"]
        .iter()
        .enumerate()
        .map(|(i, symbol)| {
            let arguments = vec![
                Argument {
                    name: "x".into(),
                    at: 0,
                    bytes: 8,
                },
                Argument {
                    name: "n".into(),
                    at: 8,
                    bytes: 4,
                },
            ];
            ExpectedLaunch {
                step: i as u32,
                name: format!("s{i}"),
                packet_lds: 512,
                launch: launch(symbol, i as u8, i as u32 % 2),
                arguments,
            }
        });
    Expectation {
        sequence: [5; 32],
        buffers: vec!["scratch".into(), "kv".into()],
        launches: launches.collect(),
        copies: Vec::new(),
        positions: 3,
    }
}

fn clean() -> Recording {
    let expectation = expectation();
    let mut tapes = Vec::new();
    for executor in 0..2 {
        for position in [0, 40, 127] {
            let launches = expectation.launches.iter().map(|l| l.launch.clone());
            let ring = launches.clone().map(|l| RingLaunch {
                symbol: l.symbol,
                object: l.object,
                grid: l.grid,
                block: l.block,
                lds: 512,
                header: HEADER,
                kernarg: l.kernarg,
                pointers: l.pointers,
            });
            let ring = Some(ring.collect());
            tapes.push(Tape {
                executor,
                position,
                entries: launches.map(Entry::Launch).collect(),
                ring,
            });
        }
    }
    Recording {
        sequence: [5; 32],
        tapes,
    }
}

fn launch_of(tape: &mut Tape, index: usize) -> &mut TapeLaunch {
    match &mut tape.entries[index] {
        Entry::Launch(launch) => launch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clean_recording_is_accepted() {
    let done = reconcile(&expectation(), &clean()).unwrap();
    assert_eq!(done.positions(), [0, 40, 127]);
    assert_eq!((done.executors(), done.ring_tapes()), (2, 6));
}

/// A change to a clean recording, and the words that the error must contain.
type Row = (&'static str, fn(&mut Recording), &'static [&'static str]);

const ROWS: &[Row] = &[
    (
        "extra launch in the middle",
        |r| {
            r.tapes[1]
                .entries
                .insert(2, Entry::Launch(launch("axpy", 0, 0)))
        },
        &[
            "executor 0, position 40",
            "launch 2 (axpy)",
            "no step",
            "step 2 (s2)",
        ],
    ),
    (
        "extra launch that repeats a step",
        |r| {
            let copy = r.tapes[1].entries[1].clone();
            r.tapes[1].entries.insert(1, copy);
        },
        &["launch 2 (gemv)", "no step", "step 2 (s2)"],
    ),
    (
        "extra launch at the end",
        |r| r.tapes[5].entries.push(Entry::Launch(launch("axpy", 0, 0))),
        &[
            "executor 1, position 127",
            "launch 4 (axpy)",
            "the end of the token",
        ],
    ),
    (
        "missing launch in the middle",
        |r| {
            r.tapes[0].entries.remove(1);
        },
        &["step 1 (s1) (gemv) was not launched", "launch 1 is rope"],
    ),
    (
        "missing last launch",
        |r| {
            r.tapes[0].entries.pop();
        },
        &["step 3 (s3) (norm) was not launched"],
    ),
    (
        "swapped neighbours",
        |r| r.tapes[2].entries.swap(1, 2),
        &["step 1 (s1) and step 2 (s2)", "swapped"],
    ),
    (
        "swapped far apart",
        |r| r.tapes[2].entries.swap(0, 3),
        &["step 0 (s0) and step 3 (s3)", "swapped"],
    ),
    (
        "memset",
        |r| {
            let dst = Place::Region {
                buffer: 1,
                offset: 64,
            };
            r.tapes[0].entries.insert(
                3,
                Entry::Memset {
                    dst,
                    value: 0xab,
                    bytes: 12,
                },
            );
        },
        &[
            "memset of 12 bytes",
            "0xab",
            "kv + 0x40",
            "before step 3 (s3)",
        ],
    ),
    (
        "copy",
        |r| {
            let dst = Place::Region {
                buffer: 0,
                offset: 0,
            };
            let direction = Direction::ToDevice;
            r.tapes[0].entries.push(Entry::Copy {
                dst,
                src: Place::Host,
                bytes: 4,
                direction,
            });
        },
        &[
            "copy (host to device) of 4 bytes",
            "scratch + 0x0",
            "the end of the token",
        ],
    ),
    (
        "kernarg byte, everywhere",
        |r| {
            for tape in &mut r.tapes {
                launch_of(tape, 2).kernarg[9] = 7;
            }
        },
        &["step 2 (s2)", "kernarg byte 9 (argument n)", "0x07", "0x00"],
    ),
    (
        "padding byte, everywhere",
        |r| {
            for tape in &mut r.tapes {
                launch_of(tape, 2).kernarg[13] = 7;
            }
        },
        &["step 2 (s2)", "kernarg byte 13 (argument padding)"],
    ),
    (
        "pointer to another region, everywhere",
        |r| {
            for tape in &mut r.tapes {
                launch_of(tape, 1).pointers[0].place = Place::Region {
                    buffer: 0,
                    offset: 20,
                };
            }
        },
        &[
            "step 1 (s1)",
            "argument x",
            "offset 0",
            "scratch + 0x14",
            "kv + 0x10",
        ],
    ),
    (
        "pointer outside, everywhere",
        |r| {
            for tape in &mut r.tapes {
                launch_of(tape, 1).pointers[0].place = Place::Outside(0xdead_0000);
            }
        },
        &[
            "step 1 (s1)",
            "argument x",
            "0xdead0000",
            "no plan buffer",
            "kv + 0x10",
        ],
    ),
    (
        "argument that follows the position",
        |r| {
            for tape in &mut r.tapes {
                let position = tape.position as u8;
                launch_of(tape, 2).kernarg[8] = position;
            }
        },
        &[
            "step 2 (s2)",
            "argument n",
            "offset 8",
            "0x00000000 at position 0",
            "0x00000028 at position 40",
        ],
    ),
    (
        "one executor differs",
        |r| {
            for tape in r.tapes.iter_mut().filter(|tape| tape.executor == 1) {
                launch_of(tape, 2).kernarg[8] = 0x55;
            }
        },
        &[
            "step 2 (s2)",
            "executor 1 has 0x00000055",
            "executor 0 has 0x00000002",
        ],
    ),
    (
        "grid",
        |r| launch_of(&mut r.tapes[0], 1).grid = [5, 1, 1],
        &["grid is [5, 1, 1]", "[4, 1, 1]"],
    ),
    (
        "block",
        |r| launch_of(&mut r.tapes[0], 1).block[0] = 64,
        &["block is [64, 1, 1]"],
    ),
    (
        "lds",
        |r| launch_of(&mut r.tapes[0], 1).lds = 64,
        &["LDS bytes is 64", "says 0"],
    ),
    (
        "object",
        |r| launch_of(&mut r.tapes[0], 1).object[0] = 2,
        &["code object is 0201"],
    ),
    (
        "kernel",
        |r| launch_of(&mut r.tapes[0], 1).symbol = "x".into(),
        &["kernel is x", "gemv"],
    ),
    (
        "ring kernarg",
        |r| r.tapes[3].ring.as_mut().unwrap()[1].kernarg[8] ^= 1,
        &[
            "executor 1, position 0",
            "packet 1 in the ring",
            "step 1 (s1)",
            "kernarg",
        ],
    ),
    (
        "ring code object",
        |r| r.tapes[3].ring.as_mut().unwrap()[1].object[31] ^= 1,
        &["packet 1 in the ring", "code object"],
    ),
    (
        "ring packet missing",
        |r| {
            r.tapes[3].ring.as_mut().unwrap().pop();
        },
        &["packet 3 in the ring", "absent"],
    ),
    (
        "ring packet extra",
        |r| {
            let ring = r.tapes[3].ring.as_mut().unwrap();
            ring.push(ring[0].clone());
        },
        &["packet 4 in the ring", "never launched"],
    ),
    (
        "ring LDS",
        |r| r.tapes[3].ring.as_mut().unwrap()[2].lds = 1024,
        &["packet 2 in the ring", "LDS bytes 1024, launched 512"],
    ),
    (
        "ring barrier bit",
        |r| r.tapes[3].ring.as_mut().unwrap()[2].header &= !(1 << 8),
        &["packet 2 in the ring", "step 2 (s2)", "barrier bit 0"],
    ),
    (
        "ring acquire fence",
        |r| r.tapes[3].ring.as_mut().unwrap()[0].header &= !(3 << 9),
        &["packet 0 in the ring", "acquire fence none"],
    ),
    (
        "ring release fence",
        |r| r.tapes[3].ring.as_mut().unwrap()[0].header |= 3 << 11,
        &["packet 0 in the ring", "release fence reserved"],
    ),
    (
        "ring packet type",
        |r| r.tapes[3].ring.as_mut().unwrap()[0].header &= !0xff,
        &["packet 0 in the ring", "packet type 0"],
    ),
    (
        "positions shared out between executors",
        |r| r.tapes.retain(|t| (t.executor == 1) == (t.position == 127)),
        &["executor 0, position 127", "not recorded"],
    ),
    (
        "one position of one executor",
        |r| {
            r.tapes.remove(4);
        },
        &["executor 1, position 40", "not recorded"],
    ),
    (
        "too few positions",
        |r| r.tapes.retain(|t| t.position != 40),
        &["2 positions in 2 executors"],
    ),
    (
        "one executor",
        |r| r.tapes.retain(|t| t.executor == 0),
        &["3 positions in 1 executors"],
    ),
    (
        "other plan",
        |r| r.sequence[0] = 6,
        &["belongs to sequence 0605", "plan is 0505"],
    ),
];

#[test]
fn each_difference_is_named() {
    for (name, change, words) in ROWS {
        let mut recording = clean();
        change(&mut recording);
        let error = reconcile(&expectation(), &recording)
            .expect_err(name)
            .to_string();
        for word in *words {
            assert!(error.contains(word), "{name}: `{word}` not in `{error}`");
        }
    }
}

proptest::proptest! {
    /// Any single changed kernarg byte of any tape is refused, and the byte or its argument named.
    #[test]
    fn any_changed_byte_is_refused(tape in 0usize..6, step in 0usize..4, byte in 8usize..16, mask in 1u8..) {
        let mut recording = clean();
        launch_of(&mut recording.tapes[tape], step).kernarg[byte] ^= mask;
        let error = reconcile(&expectation(), &recording).unwrap_err();
        let named = matches!(
            &error,
            ReconcileError::Kernarg { step: s, .. }
            | ReconcileError::PositionDependent { step: s, .. }
            | ReconcileError::ExecutorsDisagree { step: s, .. } if s.step == step as u32
        );
        proptest::prop_assert!(named, "{}", error);
    }
}

/// Step 2 is the host's and its launch runs beside: a copy down before it, one up after it.
fn with_copies() -> (Expectation, Recording) {
    let (mut expectation, mut recording) = (expectation(), clean());
    let region = |buffer, offset| Place::Region { buffer, offset };
    let copy = |after, dst, src, direction| ExpectedCopy {
        step: 2,
        name: "s2".into(),
        after,
        dst,
        src,
        bytes: 64,
        direction,
    };
    expectation.copies = vec![
        copy(2, region(1, 0), region(0, 16), Direction::FromDevice),
        copy(3, region(0, 80), region(1, 64), Direction::ToDevice),
    ];
    for tape in &mut recording.tapes {
        for planned in expectation.copies.iter().rev() {
            tape.entries.insert(planned.after, entry(planned));
        }
    }
    (expectation, recording)
}

fn entry(planned: &ExpectedCopy) -> Entry {
    let ExpectedCopy {
        dst,
        src,
        bytes,
        direction,
        ..
    } = *planned;
    Entry::Copy {
        dst,
        src,
        bytes,
        direction,
    }
}

#[test]
fn copies_of_steps_of_the_host_are_accounted_for() {
    let (expectation, recording) = with_copies();
    let done = reconcile(&expectation, &recording).unwrap();
    assert_eq!(done.ring_tapes(), 6);
    // Entries of a tape: launches 0 and 1, the copy down, launch 2, the copy up, launch 3.
    type Change = fn(&mut Vec<Entry>);
    let rows: [(Change, &[&str]); 6] = [
        (
            |list| drop(list.remove(2)),
            &["copy", "host to device", "before step 3"],
        ),
        (
            |list| drop(list.remove(4)),
            &["step 2 (s2)", "did not pass", "host to device"],
        ),
        (
            |list| list.swap(2, 3),
            &["copy (device to host)", "before step 3", "none there"],
        ),
        (
            |list| list.swap(2, 4),
            &["copy (host to device)", "before step 2"],
        ),
        (
            |list| {
                if let Entry::Copy { bytes, .. } = &mut list[2] {
                    *bytes = 60;
                }
            },
            &["copy (device to host) of 60 bytes from scratch + 0x10 to kv + 0x0"],
        ),
        (
            |list| {
                let again = list[2].clone();
                list.insert(2, again);
            },
            &["copy (device to host)", "before step 2"],
        ),
    ];
    for (index, (change, words)) in rows.into_iter().enumerate() {
        let (_, mut recording) = with_copies();
        change(&mut recording.tapes[1].entries);
        let error = reconcile(&expectation, &recording).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "row {index}, {word}: {error}");
        }
    }
    // A plan without such steps takes no copy at all.
    let (_, recording) = with_copies();
    assert!(reconcile(&self::expectation(), &recording).is_err());
}
