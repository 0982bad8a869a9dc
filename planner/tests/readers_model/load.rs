//! Changes of loading on small tensors, against their definition.

use proptest::prelude::{ProptestConfig, prop, proptest};
use refrain_planner::source::{LoadError, LoadOp, TensorType, load};

const F32: TensorType = TensorType::new("F32", 1, 4);
const F16: TensorType = TensorType::new("F16", 1, 2);
const BF16: TensorType = TensorType::new("BF16", 1, 2);
const Q8_0: TensorType = TensorType::new("Q8_0", 32, 34);
const BYTE: TensorType = TensorType::new("byte", 1, 1);

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Rows of one byte each, numbered.
fn order(op: LoadOp, rows: u8) -> Vec<u8> {
    let bytes = (0..rows).collect();
    load::apply(&[op], (BYTE, BYTE), (rows.into(), 1), bytes).unwrap()
}

#[test]
fn rows_of_a_head_are_paired() {
    let op = LoadOp::PairRows { head_rows: 6 };
    assert_eq!(order(op, 12), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
}

#[test]
fn value_heads_are_tiled_and_what_is_before_stays() {
    // Two key heads of three value heads each, two rows per head: (key, value) -> (value, key).
    let op = LoadOp::TileRows {
        from: 1,
        keys: 2,
        per_key: 3,
        size: 2,
    };
    let expected = [0, 1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12];
    assert_eq!(order(op, 13), expected);
    let columns = LoadOp::TileColumns {
        keys: 2,
        per_key: 3,
        size: 1,
    };
    let bytes = (0..12).collect();
    let found = load::apply(&[columns], (BYTE, BYTE), (2, 6), bytes).unwrap();
    assert_eq!(found, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
}

#[test]
fn floats_widen_exactly_and_arithmetic_is_in_f32() {
    let one = [0x80, 0x3f, 0x00, 0xc0];
    let loaded = load::apply(&[], (BF16, F32), (1, 2), one.to_vec()).unwrap();
    assert_eq!(loaded, floats(&[1.0, -2.0]));
    let halves = [0x00, 0x3c, 0x01, 0x00];
    let loaded = load::apply(&[LoadOp::AddOne], (F16, F32), (2, 1), halves.to_vec()).unwrap();
    assert_eq!(loaded, floats(&[2.0, 1.0 + 2f32.powi(-24)]));
    let logs = floats(&[0.0, 1.0]);
    let loaded = load::apply(&[LoadOp::NegExp], (F32, F32), (1, 2), logs).unwrap();
    assert_eq!(loaded, floats(&[-1.0, -std::f32::consts::E]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let tile = |size| LoadOp::TileColumns {
        keys: 2,
        per_key: 2,
        size,
    };
    let check = |op, ty, shape| load::check(&[op], (ty, ty), shape);
    assert!(check(tile(32), Q8_0, (1, 128)).is_ok());
    for (op, ty, shape) in [
        (LoadOp::PairRows { head_rows: 0 }, F32, (4, 1)),
        (LoadOp::PairRows { head_rows: 3 }, F32, (6, 1)),
        (LoadOp::PairRows { head_rows: 4 }, F32, (6, 1)),
        // Through the middle of a block of 32.
        (tile(16), Q8_0, (1, 64)),
        (tile(0), F32, (1, 0)),
        (tile(u32::MAX), F32, (1, 64)),
        (
            LoadOp::TileRows {
                from: 3,
                keys: 2,
                per_key: 2,
                size: 1,
            },
            F32,
            (8, 1),
        ),
    ] {
        let error = check(op, ty, shape).unwrap_err();
        assert!(matches!(error, LoadError::Order { .. }), "{op:?} {error}");
    }
    let error = check(LoadOp::AddOne, F16, (1, 1)).unwrap_err();
    assert!(matches!(error, LoadError::Arithmetic { .. }));
    let error = load::check(&[], (Q8_0, F32), (1, 32)).unwrap_err();
    assert!(matches!(error, LoadError::Conversion { .. }));
    let error = load::apply(&[], (F32, F32), (1, 2), vec![0; 7]).unwrap_err();
    assert!(matches!(error, LoadError::Bytes { found: 7, .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Every change of order keeps all elements, and none panics on any shape.
    #[test]
    fn order_only_moves(
        keys in 0u32..5,
        per_key in 0u32..5,
        size in 0u32..4,
        from in 0u32..4,
        rows in 0u64..30,
        columns in 0u64..8,
        seed in prop::collection::vec(0u8.., 240),
    ) {
        let ops = [
            LoadOp::TileRows { from, keys, per_key, size },
            LoadOp::TileColumns { keys, per_key, size },
            LoadOp::PairRows { head_rows: keys * 2 },
        ];
        let bytes = &seed[..(rows * columns) as usize];
        for op in ops {
            if let Ok(mut found) = load::apply(&[op], (BYTE, BYTE), (rows, columns), bytes.to_vec()) {
                let mut given = bytes.to_vec();
                found.sort_unstable();
                given.sort_unstable();
                assert_eq!(found, given, "{op:?}");
            }
        }
    }
}
