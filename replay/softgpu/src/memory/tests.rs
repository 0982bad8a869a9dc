//! Bounds, rights, poison, tombstones and atomics of the address space.

use super::{
    Access, AddressSpace, AllocError, FaultReason, Kind, LastHit, PAGE, POISON_BYTE, Rights,
};
use std::sync::atomic::Ordering;

fn space(len: u64, rights: Rights) -> (AddressSpace, u64) {
    let memory = AddressSpace::new();
    let base = memory.alloc("x", len, 1, rights, Kind::Device).unwrap();
    (memory, base)
}

#[test]
fn fresh_memory_is_poison_and_page_aligned() {
    let (memory, base) = space(33, Rights::READ_WRITE);
    assert_eq!(base % PAGE, 0);
    let mut out = [0; 33];
    memory.read_bytes(base, &mut out).unwrap();
    assert_eq!(out, [POISON_BYTE; 33]);
    assert_eq!(memory.total_bytes(), 33);
}

#[test]
fn accesses_are_bounded() {
    let (memory, base) = space(64, Rights::READ_WRITE);
    let cases = [
        (base, 64, None),
        (base + 63, 1, None),
        (base + 64, 1, Some(1)),
        (base + 60, 8, Some(0)),
        (base + 164, 4, Some(100)),
        (base - 8, 4, Some(-8)),
        (u64::MAX - 3, 16, Some(i64::MAX)),
    ];
    for (va, len, distance) in cases {
        let got = memory.check(va, len, Access::Read);
        match distance {
            None => got.unwrap(),
            Some(d) => {
                let fault = got.unwrap_err();
                assert_eq!(fault.reason, FaultReason::OutOfBounds);
                if d != i64::MAX {
                    assert_eq!(fault.nearest.clone().unwrap().distance, d, "{fault}");
                }
                assert!(fault.to_string().contains("`x`"), "{fault}");
            }
        }
        let view = memory.view();
        let allowed = view.allows(&mut LastHit::default(), va, len, Rights::READ);
        assert_eq!(allowed, distance.is_none());
    }
}

/// Past an end is far likelier than before a start: the allocation below is named although the one above
/// is nearer, until that is next door.
#[test]
fn what_was_run_past_is_named_rather_than_what_comes_next() {
    let memory = AddressSpace::new();
    let mut pair = ["a", "b"].map(|name| {
        let base = memory.alloc(name, 64, 1, Rights::READ_WRITE, Kind::Device);
        (base.unwrap(), name)
    });
    pair.sort_unstable();
    let [(below, low), (above, high)] = pair;
    let end = below + 64;
    let gap = above - end;
    for (before, expected) in [(gap / 2, low), (gap / 8, low), (gap / 128, high)] {
        let fault = memory.check(above - before, 1, Access::Write).unwrap_err();
        assert_eq!(&*fault.nearest.unwrap().name, expected, "{before} of {gap}");
    }
}

#[test]
fn rights_are_enforced() {
    let (memory, base) = space(16, Rights::READ);
    assert_eq!(
        memory.write_bytes(base, &[1]).unwrap_err().reason,
        FaultReason::Rights
    );
    assert_eq!(
        memory
            .fetch_add_u32(base, 1, Ordering::SeqCst)
            .unwrap_err()
            .reason,
        FaultReason::Rights
    );
    assert_eq!(
        memory.check(base, 4, Access::Execute).unwrap_err().reason,
        FaultReason::Rights
    );
    memory.set_rights(base, Rights::READ_WRITE).unwrap();
    memory.write_bytes(base, &[1]).unwrap();
    assert_eq!(
        memory.check(base, 4, Access::HostRead).unwrap_err().reason,
        FaultReason::Rights
    );
}

#[test]
fn freed_memory_is_named() {
    let (memory, base) = space(4096, Rights::READ_WRITE);
    memory.rename(base, "kv cache").unwrap();
    let view = memory.view();
    memory.free(base).unwrap();
    let fault = memory.check(base + 8, 4, Access::Read).unwrap_err();
    assert_eq!(fault.reason, FaultReason::Freed);
    assert!(fault.to_string().contains("`kv cache`") && fault.to_string().contains("freed"));
    assert!(
        view.contains(base, 16, Access::Read),
        "a view keeps what it lists"
    );
    assert_eq!(
        memory.free(base).unwrap_err(),
        AllocError::NotABase { base }
    );
    assert_eq!(memory.total_bytes(), 0);
}

#[test]
fn atomics_check_alignment_and_add() {
    let (memory, base) = space(16, Rights::READ_WRITE);
    memory.store_u64(base, 5, Ordering::Release).unwrap();
    assert_eq!(
        memory
            .fetch_add_u64(base, u64::MAX, Ordering::AcqRel)
            .unwrap(),
        5
    );
    assert_eq!(memory.load_u64(base, Ordering::Acquire).unwrap(), 4);
    assert_eq!(
        memory
            .load_u32(base + 2, Ordering::Acquire)
            .unwrap_err()
            .reason,
        FaultReason::Misaligned
    );
    assert_eq!(memory.fetch_add_u32(base, 3, Ordering::Relaxed).unwrap(), 4);
    assert_eq!(memory.read_u32(base).unwrap(), 7);
}

#[test]
fn absurd_requests_are_refused() {
    let memory = AddressSpace::new();
    let ask = |len, align| memory.alloc("y", len, align, Rights::READ, Kind::Device);
    assert!(matches!(ask(0, 1), Err(AllocError::Size { .. })));
    assert!(matches!(ask(u64::MAX, 1), Err(AllocError::Size { .. })));
    assert!(matches!(ask(1, 3), Err(AllocError::Align { .. })));
    assert!(matches!(ask(1, 1 << 40), Err(AllocError::Align { .. })));
    assert!(
        memory
            .check(0, 1, Access::Read)
            .unwrap_err()
            .to_string()
            .contains("nothing allocated")
    );
}

#[test]
fn views_are_shared_until_something_changes() {
    let (memory, base) = space(16, Rights::READ_WRITE);
    let first = memory.view();
    assert!(std::sync::Arc::ptr_eq(&first, &memory.view()));
    memory.rename(base, "z").unwrap();
    assert!(
        std::sync::Arc::ptr_eq(&first, &memory.view()),
        "a name is not part of a view"
    );
    let other = memory.alloc("w", 8, 1, Rights::READ, Kind::Host).unwrap();
    assert!(memory.view().epoch() > first.epoch());
    assert_eq!(memory.find(other + 7).unwrap().name.as_ref(), "w");
    assert!(memory.find(other + 8).is_none());
}
