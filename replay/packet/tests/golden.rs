//! Golden words: the worked example and every literal header and control word that public
//! sources give, plus the identity of encoded forms.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::{World, descriptor};
use refrain_packet::aql::encode as aql;
use refrain_packet::decode::packets;
use refrain_packet::kd::{KernelDescriptor, property};
use refrain_packet::launch::EncodeError;
use refrain_packet::pm4::{POLICIES, Policy, Writer, encode_ib};
use refrain_packet::reloc::Cause;
use refrain_packet::state::snapshots;
use refrain_packet::tables::opcodes::{header, op};
use refrain_packet::tables::registers::{initiator, reg};
use refrain_packet::{Before, Bindings, DispatchDesc, Gfx, KernelImage};

/// Kernel and launch of the worked example: wave32, 96 groups of 256, 1536 bytes of LDS.
fn example() -> (KernelImage, DispatchDesc) {
    let descriptor = KernelDescriptor {
        kernarg_size: 64,
        rsrc1: 0x60AF_0001,
        rsrc2: 0x84,
        properties: property::KERNARG_SEGMENT_PTR | property::WAVEFRONT_SIZE32,
        ..KernelDescriptor::default()
    };
    let image = KernelImage {
        symbol: "example".to_owned(),
        descriptor,
        facts: None,
        entry_va: Some(0x7F12_3456_7800),
    };
    let launch = DispatchDesc {
        kernel: 0,
        groups: [96, 1, 1],
        group_size: [256, 1, 1],
        lds_bytes: 1536,
        kernarg_offset: 0,
        before: Before::Nothing,
    };
    (image, launch)
}

#[rustfmt::skip]
const BODY: [&[u32]; 8] = [
    &[0xC003_7600, 0x0000_0204, 0, 0, 0],
    &[0xC001_7600, 0x0000_0215, 0],
    &[0xC003_7600, 0x0000_0207, 0x100, 1, 1],
    &[0xC002_7600, 0x0000_020C, 0x1234_5678, 0x0000_007F],
    &[0xC002_7600, 0x0000_0212, 0x60AF_0001, 0x0001_8084],
    &[0xC001_7600, 0x0000_0228, 0],
    &[0xC002_7600, 0x0000_0240, 0xAABB_CC00, 0x0000_7F00],
    &[0xC003_1500, 0x60, 1, 1, 0x8005],
];

#[test]
fn worked_example_is_exact() {
    for (target, head, boundary) in [
        (Gfx::Gfx1030, 0x1_C3F1, 0x380),
        (Gfx::Gfx1151, 0x1_C3F1, 0x380),
        (Gfx::Gfx1200, 0x1_C1C1, 0x180),
        (Gfx::Gfx1201, 0x1_C1C1, 0x180),
    ] {
        let (image, launch) = example();
        let second = DispatchDesc {
            before: Before::WaitAcquire(boundary),
            ..launch
        };
        let policy = Policy::named("static-unpadded").unwrap();
        let images = [image];
        let free = encode_ib(target, policy, &images, &[launch, second]).unwrap();
        let entries = KernelImage::entries(&images).unwrap();
        let bindings = Bindings {
            entries: &entries,
            kernarg_base: 0x7F00_AABB_CC00,
            ..Bindings::default()
        };
        let mut want = vec![0xC006_5800, 0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, head];
        want.extend(BODY.concat());
        want.extend([0xC000_4600, 0x407]);
        want.extend([0xC006_5800, 0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, boundary]);
        want.extend(BODY[2..].concat());
        want.extend([0xC000_4600, 0x407]);
        assert_eq!(free.resolve(&bindings).unwrap(), want, "{target}");
    }
}

#[test]
fn priv_is_set_where_the_capability_row_says() {
    let (image, launch) = example();
    let word = |target, policy: &str| {
        let policy = Policy::named(policy).unwrap();
        let free = encode_ib(target, policy, std::slice::from_ref(&image), &[launch]).unwrap();
        snapshots(&free.words).unwrap()[0]
            .state
            .get(reg::PGM_RSRC1)
            .unwrap()
    };
    assert_eq!(word(Gfx::Gfx1100, "static"), 0x60BF_0001);
    assert_eq!(word(Gfx::Gfx1100, "static-no-priv"), 0x60AF_0001);
    assert_eq!(word(Gfx::Gfx1151, "static"), 0x60AF_0001);
    assert_eq!(word(Gfx::Gfx1151, "static-priv-all-gfx11"), 0x60BF_0001);
    assert_eq!(word(Gfx::Gfx1201, "static-priv-all-gfx11"), 0x60AF_0001);
}

#[test]
fn literal_headers_and_control_words() {
    let headers = [
        (op::SET_SH_REG, 3, 0xC001_7600),
        (op::SET_SH_REG, 4, 0xC002_7600),
        (op::DISPATCH_DIRECT, 5, 0xC003_1500),
        (op::EVENT_WRITE, 2, 0xC000_4600),
        (op::ACQUIRE_MEM, 8, 0xC006_5800),
        (op::RELEASE_MEM, 8, 0xC006_4900),
        (op::WAIT_REG_MEM, 7, 0xC005_3C00),
        (op::WAIT_REG_MEM64, 9, 0xC007_9300),
        (op::COPY_DATA, 6, 0xC004_4000),
        (op::WRITE_DATA, 5, 0xC003_3700),
        (op::ATOMIC_MEM, 9, 0xC007_1E00),
        (op::INDIRECT_BUFFER, 4, 0xC002_3F00),
        (op::DMA_DATA, 7, 0xC005_5000),
        (op::SET_SH_REG_INDEX, 3, 0xC001_9B00),
    ];
    for (opcode, dwords, want) in headers {
        assert_eq!(header::type3(opcode, dwords), want, "{opcode:#x}");
    }
    assert_eq!(header::TYPE2, 0x8000_0000);
    assert_eq!(header::NOP1, 0xFFFF_1000);
    assert_eq!(initiator::WAVE32, 0x8005);
    assert_eq!(initiator::WAVE64, 0x0005);
    let mut writer = Writer::default();
    writer.wait();
    writer.acquire(0x380);
    writer.nop(1).unwrap();
    writer.nop(3).unwrap();
    let want = [
        0xC000_4600,
        0x407,
        0xC006_5800,
        0,
        0xFFFF_FFFF,
        0x00FF_FFFF,
        0,
        0,
        0xA,
        0x380,
        0xFFFF_1000,
        0xC001_1000,
        0,
        0,
    ];
    assert_eq!(writer.words(), want);
}

#[test]
fn pm4_ib_packet_words() {
    let packet = refrain_packet::aql::Pm4Ib {
        address: 0x7F00_1234_5000,
        dwords: 96,
        policy: 0,
        completion_signal: 0x7F00_0000_0040,
    };
    let header =
        refrain_packet::aql::Header::system(refrain_packet::aql::PacketType::VendorSpecific);
    let encoded = aql::pm4_ib(header, &packet).unwrap();
    assert_eq!(
        &encoded.body()[..4],
        [1, 0, 0, 0],
        "the body alone never publishes"
    );
    let mut want = [0_u32; 16];
    // Type 0, barrier, acquire and release at system scope; format 1 in the high half.
    want[0] = 0x0001_1500;
    want[1..6].copy_from_slice(&[0xC002_3F00, 0x1234_5000, 0x7F00, 0x0080_0060, 10]);
    want[14..].copy_from_slice(&[0x40, 0x7F00]);
    assert_eq!(encoded.words(), want);
}

#[test]
fn kernel_dispatch_packet_bytes() {
    let packet = refrain_packet::aql::KernelDispatch {
        dimensions: 3,
        workgroup_size: [256, 1, 1],
        grid_size: [96 * 256, 1, 1],
        group_segment_size: 1536,
        kernel_object: 0x7F12_3456_0040,
        kernarg_address: 0x7F00_AABB_CC00,
        completion_signal: 0x7F00_0000_0040,
        ..Default::default()
    };
    let header =
        refrain_packet::aql::Header::system(refrain_packet::aql::PacketType::KernelDispatch);
    let words = aql::kernel_dispatch(header, &packet).unwrap().words();
    let want = [
        0x0003_1502,
        0x0001_0100,
        1,
        0x6000,
        1,
        1,
        0,
        0x600,
        0x3456_0040,
        0x7F12,
        0xAABB_CC00,
        0x7F00,
        0,
        0,
        0x40,
        0x7F00,
    ];
    assert_eq!(words, want);
}

#[test]
fn dwords_per_launch_stay_within_the_bound() {
    for target in Gfx::ALL {
        let images = common::images(target, 2);
        let launches = common::launches(target, 2, 700);
        let free = encode_ib(target, Policy::DEFAULT, &images, &launches).unwrap();
        let bound = if target == Gfx::Gfx1030 { 29 } else { 25 };
        let per_launch = free.dwords.launches().div_ceil(700);
        assert_eq!(per_launch, bound, "{target}");
        assert_eq!(free.dwords.total() as usize, free.words.len());
        println!("{target}: 700 launches, {} dwords", free.words.len());
        for cause in Cause::ALL {
            println!("  {:16} {}", cause.name(), free.dwords.get(cause));
        }
    }
}

#[test]
fn every_policy_gives_every_dispatch_the_same_registers() {
    for target in Gfx::ALL {
        let images = common::images(target, 3);
        let launches = common::launches(target, 3, 60);
        let base = encode_ib(target, Policy::DEFAULT, &images, &launches).unwrap();
        let want = snapshots(&base.words).unwrap();
        for policy in POLICIES {
            let free = encode_ib(target, policy, &images, &launches).unwrap();
            let got = snapshots(&free.words).unwrap();
            assert_eq!(got.len(), want.len());
            let privilege = policy.sets_priv(target.capability())
                != Policy::DEFAULT.sets_priv(target.capability());
            let same = got.iter().zip(&want).all(|(a, b)| a.same_work(b));
            assert_eq!(same, !privilege, "{target} {}", policy.name);
            assert!(!policy.pad || free.words.len().is_multiple_of(8));
            // Relocated words must agree too: resolve both to one set of addresses.
            let entries: Vec<u64> = (1..4).map(|i| 0x7F00_0000_0000 + 0x1000 * i).collect();
            let bindings = Bindings {
                entries: &entries,
                kernarg_base: 0x7E00_0000_0000,
                ..Bindings::default()
            };
            let a = snapshots(&free.resolve(&bindings).unwrap()).unwrap();
            let b = snapshots(&base.resolve(&bindings).unwrap()).unwrap();
            assert_eq!(a.iter().zip(&b).all(|(a, b)| a.same_work(b)), !privilege);
        }
        let elided = encode_ib(target, Policy::named("elide").unwrap(), &images, &launches);
        assert!(elided.unwrap().words.len() < base.words.len());
    }
}

#[test]
fn identity_changes_with_policy_and_not_with_addresses() {
    let images = common::images(Gfx::Gfx1201, 2);
    let launches = common::launches(Gfx::Gfx1201, 2, 5);
    let encode = |policy| encode_ib(Gfx::Gfx1201, policy, &images, &launches).unwrap();
    let base = encode(Policy::DEFAULT).canonical_bytes();
    let mut moved = images.clone();
    moved[0].entry_va = None;
    let again = encode_ib(Gfx::Gfx1201, Policy::DEFAULT, &moved, &launches).unwrap();
    assert_eq!(base, again.canonical_bytes());
    for policy in &POLICIES[1..] {
        assert_ne!(base, encode(policy).canonical_bytes(), "{}", policy.name);
    }
    let mut shifted = launches.clone();
    shifted[4].kernarg_offset += 0x1000;
    let shifted = encode_ib(Gfx::Gfx1201, Policy::DEFAULT, &images, &shifted).unwrap();
    assert_ne!(base, shifted.canonical_bytes());
    let mut renamed = images.clone();
    renamed[1].symbol.push('x');
    let renamed = encode_ib(Gfx::Gfx1201, Policy::DEFAULT, &renamed, &launches).unwrap();
    assert_ne!(base, renamed.canonical_bytes());
}

#[test]
fn relocations_refuse_bad_addresses() {
    let images = common::images(Gfx::Gfx1201, 1);
    let launches = common::launches(Gfx::Gfx1201, 1, 1);
    let free = encode_ib(Gfx::Gfx1201, Policy::DEFAULT, &images, &launches).unwrap();
    let resolve = |entry: &[u64], kernarg| {
        free.resolve(&Bindings {
            entries: entry,
            kernarg_base: kernarg,
            ..Bindings::default()
        })
    };
    assert!(resolve(&[0x1000], 0x40).is_ok());
    assert!(
        resolve(&[], 0x40)
            .unwrap_err()
            .to_string()
            .contains("no address bound")
    );
    for (entry, kernarg) in [
        (0x1080, 0x40),
        (1 << 48, 0x40),
        (0x1000, 0x48),
        (0x1000, u64::MAX),
    ] {
        assert!(
            resolve(&[entry], kernarg).is_err(),
            "{entry:#x} {kernarg:#x}"
        );
    }
}

#[test]
fn encoder_errors_are_typed() {
    let target = Gfx::Gfx1201;
    let good = common::launches(target, 1, 1)[0];
    let image = common::images(target, 1);
    let refuse = |edit: &dyn Fn(&mut DispatchDesc)| {
        let mut launch = good;
        edit(&mut launch);
        encode_ib(target, Policy::DEFAULT, &image, &[launch]).unwrap_err()
    };
    assert!(matches!(
        refuse(&|l| l.kernel = 9),
        EncodeError::NoKernel { kernel: 9, .. }
    ));
    assert!(matches!(
        refuse(&|l| l.groups[1] = 65_536),
        EncodeError::Groups { .. }
    ));
    assert!(matches!(
        refuse(&|l| l.groups[0] = 0),
        EncodeError::Groups { .. }
    ));
    assert!(matches!(
        refuse(&|l| l.groups[0] = u32::MAX),
        EncodeError::Groups { .. }
    ));
    assert!(matches!(
        refuse(&|l| l.group_size[2] = 5),
        EncodeError::GroupSize { .. }
    ));
    assert!(matches!(
        refuse(&|l| l.lds_bytes = 65_537),
        EncodeError::Lds { .. }
    ));
    assert!(matches!(
        refuse(&|l| l.kernarg_offset = 8),
        EncodeError::KernargAlign { .. }
    ));
    let gcr = refuse(&|l| l.before = Before::WaitAcquire(0x380));
    assert!(
        matches!(
            gcr,
            EncodeError::Gcr {
                bits: 0x200,
                suggested: 0x180,
                ..
            }
        ),
        "{gcr}"
    );
    let none = encode_ib(target, Policy::DEFAULT, &image, &[]).unwrap_err();
    assert_eq!(none, EncodeError::Empty);
    let mut spilled = image.clone();
    spilled[0].descriptor.private_segment_fixed_size = 16;
    let refused = encode_ib(target, Policy::DEFAULT, &spilled, &[good]).unwrap_err();
    assert!(
        refused.to_string().contains("16 bytes of scratch"),
        "{refused}"
    );
}

#[test]
fn wave64_and_padding_sgprs() {
    let mut image = common::images(Gfx::Gfx1100, 1);
    image[0].descriptor.properties &= !property::WAVEFRONT_SIZE32;
    image[0].descriptor.rsrc2 = 0x80 | 5 << 1;
    let launches = common::launches(Gfx::Gfx1100, 1, 1);
    let free = encode_ib(Gfx::Gfx1100, Policy::DEFAULT, &image, &launches).unwrap();
    let shot = snapshots(&free.words).unwrap()[0];
    assert_eq!(shot.initiator, 0x0005);
    assert_eq!(
        (0..6).map(|i| shot.state.user_data(i)).collect::<Vec<_>>(),
        [Some(0), Some(0), Some(0), Some(0), Some(0), None]
    );
}

#[test]
fn descriptor_round_trips_and_refuses() {
    for target in Gfx::ALL {
        let row = descriptor(target, 1);
        assert_eq!(KernelDescriptor::parse(&row.to_bytes()).unwrap(), row);
        assert_eq!(row.check(target), Ok(()), "{target}");
    }
    let mut bytes = descriptor(Gfx::Gfx1201, 0).to_bytes();
    assert!(KernelDescriptor::parse(&bytes[..63]).is_err());
    bytes[30] = 7;
    assert!(
        KernelDescriptor::parse(&bytes)
            .unwrap_err()
            .to_string()
            .contains("byte 30")
    );
    let base = descriptor(Gfx::Gfx1201, 0);
    type Edit = (&'static str, fn(&mut KernelDescriptor));
    let edits: [Edit; 16] = [
        ("dispatch pointer", |d| {
            d.properties |= property::DISPATCH_PTR
        }),
        ("queue pointer", |d| d.properties |= property::QUEUE_PTR),
        ("dispatch id", |d| d.properties |= property::DISPATCH_ID),
        ("flat scratch", |d| {
            d.properties |= property::FLAT_SCRATCH_INIT
        }),
        ("private segment size", |d| {
            d.properties |= property::PRIVATE_SEGMENT_SIZE
        }),
        ("private segment buffer", |d| {
            d.properties |= property::PRIVATE_SEGMENT_BUFFER
        }),
        ("dynamic stack", |d| {
            d.properties |= property::USES_DYNAMIC_STACK
        }),
        ("wave groups", |d| {
            d.properties |= property::ENABLE_WAVEGROUP
        }),
        ("unknown property", |d| d.properties |= 1 << 13),
        ("preload", |d| d.kernarg_preload = 4),
        ("scratch per", |d| d.private_segment_fixed_size = 4),
        ("scratch per", |d| d.rsrc2 |= 1),
        ("static LDS", |d| d.group_segment_fixed_size = 65_537),
        ("256-byte aligned", |d| d.entry_byte_offset += 4),
        ("RSRC2 bits", |d| d.rsrc2 |= 1 << 15),
        ("user SGPRs", |d| d.rsrc2 &= !0x3E),
    ];
    for (text, edit) in edits {
        let mut row = base;
        edit(&mut row);
        let refusals = row.refusals(Gfx::Gfx1201);
        assert!(
            refusals.iter().any(|r| r.to_string().contains(text)),
            "{text}: {refusals:?}"
        );
    }
}

#[test]
fn aql_segment_completes_after_every_launch() {
    use refrain_packet::aql::decode::{AqlPacket, decode};
    use refrain_packet::aql::{AqlPolicy, Header, Scope, encode_segment};
    let target = Gfx::Gfx1201;
    let images = common::images(target, 2);
    let mut launches = common::launches(target, 2, 3);
    for (before, packets) in [(Before::WaitAcquire(0x180), 3), (Before::Nothing, 4)] {
        launches[2].before = before;
        let free = encode_segment(target, AqlPolicy::Schedule, &images, &launches).unwrap();
        assert_eq!(free.words.len(), 16 * packets);
        let bytes: Vec<[u8; 64]> = free
            .words
            .chunks_exact(16)
            .map(|w| refrain_packet::aql::EncodedPacket::from_words(w.try_into().unwrap()).bytes())
            .collect();
        let last = Header::from_bits(decode(&bytes[packets - 1]).header).unwrap();
        assert!(last.barrier && last.release == Scope::System);
        let first = Header::from_bits(decode(&bytes[0]).header).unwrap();
        assert!(first.barrier && first.acquire == Scope::System);
        let terminal = matches!(decode(&bytes[packets - 1]).packet, AqlPacket::BarrierAnd(_));
        assert_eq!(terminal, packets == 4);
        let signals = free
            .relocations
            .iter()
            .filter(|r| r.kind.name().starts_with("signal"));
        assert_eq!(signals.count(), 2);
    }
}

#[test]
fn foreign_styles_decode() {
    // Shader-type bit, offloaded event, thread dimensions, one-dword NOP, type-2 filler.
    let words = [
        0xC003_7602,
        0x207,
        256,
        1,
        1,
        0xC003_1502,
        24_576,
        1,
        1,
        0x8025,
        0xC000_4602,
        0x8000_0407,
        0xFFFF_1000,
        0x8000_0000,
    ];
    let all: Vec<_> = packets(&words).collect::<Result<_, _>>().unwrap();
    assert_eq!(all.len(), 5);
    assert!(all[0].shader_type && all[2].packet.is_wait());
}

#[test]
fn decoder_errors_name_offset_and_both_values() {
    let cases: [(&[u32], &str); 8] = [
        (
            &[0xC003_1500, 1, 1, 1],
            "of 5 dwords runs past the end, 4 are left",
        ),
        (&[0x8000_0000, 0x0000_7600, 0], "dword 1"),
        (&[0x4000_7600], "type 1"),
        (&[0xC001_7601, 0x240, 0], "bits 0x01"),
        (&[0xC001_7604, 0x240, 0], "bits 0x04"),
        (&[0xC001_1500, 1, 1], "of 3 dwords, expected 5 dwords"),
        (&[0xC005_7600, 0x240, 0], "runs past the end, 3 are left"),
        (
            &[0xC001_7600, 0x0040_0240, 0],
            "bits 0x00400000 are reserved",
        ),
    ];
    for (words, text) in cases {
        let error = packets(words).find_map(Result::err).unwrap();
        assert!(error.to_string().contains(text), "{error}");
    }
    // The one-dword form belongs to NOP alone.
    let mut long = vec![0_u32; 0x4001];
    long[0] = 0xFFFF_7600;
    long[1] = 0x240;
    assert!(packets(&long).next().unwrap().is_err());
}

#[test]
fn world_of_every_target_and_policy_is_clean() {
    for target in Gfx::ALL {
        for policy in POLICIES {
            let world = World::with(target, policy, 6);
            let report = world.lint_ib();
            let privilege = policy.sets_priv(target.capability())
                != Policy::DEFAULT.sets_priv(target.capability());
            if privilege {
                assert!(!world.lint_alone().rejects(&[]), "{target} {}", policy.name);
            } else {
                assert_eq!(report.findings, [], "{target} {}", policy.name);
            }
            assert_eq!(report.not_checked, []);
            assert_eq!(report.checked, 33);
            let ring = world.lint_ring();
            assert_eq!(ring.findings, [], "{target}");
            assert_eq!(ring.checked, 17);
        }
    }
}

#[test]
fn metadata_refusals_name_their_reason() {
    use refrain_packet::kd::KernelFacts;
    type Edit = (&'static str, fn(&mut KernelFacts));
    let edits: [Edit; 9] = [
        ("kind is not normal", |f| f.normal = false),
        ("printf", |f| f.printf = true),
        ("dynamic stack", |f| f.dynamic_stack = true),
        ("hidden services", |f| f.hidden_services = true),
        ("cooperatively", |f| f.cooperative = true),
        ("clusters", |f| f.clusters = true),
        ("compiled for gfx1100", |f| f.target = Some(Gfx::Gfx1100)),
        ("required [64, 1, 1]", |f| {
            f.reqd_workgroup_size = Some([64, 1, 1])
        }),
        ("maximum 128", |f| f.max_flat_workgroup_size = 128),
    ];
    let (group, grid) = ([256, 1, 1], [1024, 1, 1]);
    let base = KernelFacts::default();
    assert_eq!(base.refusals(Gfx::Gfx1201, group, grid), []);
    for (text, edit) in edits {
        let mut facts = base;
        edit(&mut facts);
        let refusals = facts.refusals(Gfx::Gfx1201, group, grid);
        assert_eq!(refusals.len(), 1, "{text}");
        assert!(refusals[0].to_string().contains(text), "{}", refusals[0]);
    }
    let partial = base.refusals(Gfx::Gfx1201, group, [1000, 1, 1]);
    assert!(partial[0].to_string().contains("not a multiple"));
}

#[test]
fn aql_encoder_errors_are_typed() {
    use refrain_packet::aql::encode::AqlError;
    use refrain_packet::aql::{Barrier, Header, KernelDispatch, PacketType, Pm4Ib};
    let header = Header::system(PacketType::KernelDispatch);
    let good = KernelDispatch {
        dimensions: 2,
        workgroup_size: [64, 2, 1],
        grid_size: [64, 2, 1],
        kernel_object: 64,
        ..KernelDispatch::default()
    };
    assert!(aql::kernel_dispatch(header, &good).is_ok());
    let refuse = |edit: &dyn Fn(&mut KernelDispatch)| {
        let mut packet = good;
        edit(&mut packet);
        aql::kernel_dispatch(header, &packet).unwrap_err()
    };
    assert!(matches!(
        refuse(&|p| p.dimensions = 4),
        AqlError::Dimensions { found: 4 }
    ));
    assert!(matches!(
        refuse(&|p| p.workgroup_size = [1025, 1, 1]),
        AqlError::GroupSize { .. }
    ));
    assert!(matches!(
        refuse(&|p| p.workgroup_size[2] = 2),
        AqlError::GroupSize { .. }
    ));
    assert!(matches!(
        refuse(&|p| p.grid_size[1] = 0),
        AqlError::GridSize { .. }
    ));
    assert!(matches!(
        refuse(&|p| p.grid_size[2] = 2),
        AqlError::GridSize { .. }
    ));
    for edit in [
        |p: &mut KernelDispatch| p.kernel_object = 0,
        |p: &mut KernelDispatch| p.kernel_object = 65,
        |p: &mut KernelDispatch| p.kernarg_address = 8,
        |p: &mut KernelDispatch| p.completion_signal = 8,
    ] {
        assert!(matches!(refuse(&edit), AqlError::Address { .. }));
    }
    let other = Header::system(PacketType::BarrierAnd);
    let kind = aql::kernel_dispatch(other, &good).unwrap_err();
    assert!(matches!(kind, AqlError::Kind { .. }), "{kind}");
    assert!(aql::barrier(header, &Barrier::default()).is_err());
    let signal = Barrier {
        dep_signal: [4, 0, 0, 0, 0],
        ..Barrier::default()
    };
    assert!(aql::barrier(other, &signal).is_err());
    let vendor = Header::system(PacketType::VendorSpecific);
    let ib = Pm4Ib {
        address: 4096,
        dwords: 8,
        policy: 0,
        completion_signal: 0,
    };
    assert!(aql::pm4_ib(vendor, &ib).is_ok());
    for bad in [
        Pm4Ib { address: 2, ..ib },
        Pm4Ib {
            address: 1 << 48,
            ..ib
        },
        Pm4Ib { dwords: 0, ..ib },
        Pm4Ib {
            dwords: 0x10_0000,
            ..ib
        },
        Pm4Ib { policy: 4, ..ib },
    ] {
        assert!(aql::pm4_ib(vendor, &bad).is_err(), "{bad:?}");
    }
    assert_eq!(aql::invalid().words()[0], 1);
}

#[test]
fn writer_errors_are_typed() {
    use refrain_packet::packet::Packet;
    use refrain_packet::pm4::PacketError;
    let write = |packet: &Packet<'_>| Writer::default().packet(packet).unwrap_err();
    let sh = |vmid_shift, index, values| Packet::SetShReg {
        offset: 0,
        vmid_shift,
        index,
        values,
    };
    assert!(matches!(
        write(&sh(0, 0, &[])),
        PacketError::NoValues { .. }
    ));
    assert!(matches!(
        write(&sh(32, 0, &[1])),
        PacketError::Field { bits: 5, .. }
    ));
    assert!(matches!(
        write(&sh(0, 16, &[1])),
        PacketError::Field { bits: 4, .. }
    ));
    let long = vec![0; 0x4000];
    assert!(matches!(
        write(&sh(0, 0, &long)),
        PacketError::TooLong { .. }
    ));
    assert!(matches!(
        write(&Packet::Nop { body: &long }),
        PacketError::TooLong { dwords: 0x4001 }
    ));
    let data = Packet::WriteData {
        control: 0,
        address: 0,
        data: &[],
    };
    assert!(matches!(write(&data), PacketError::NoValues { .. }));
    let other = Packet::Other {
        opcode: 1,
        body: &[],
    };
    assert!(matches!(write(&other), PacketError::NoValues { .. }));
}

#[test]
fn targets_are_found_by_name_and_machine() {
    for target in Gfx::ALL {
        let row = target.capability();
        assert_eq!(Gfx::from_name(target.name()), Some(target));
        assert_eq!(
            Gfx::from_name(&format!("amdgcn-amd-amdhsa--{target}")),
            Some(target)
        );
        assert_eq!(Gfx::from_elf_mach(row.elf_mach), Some(target));
        // The rows' cache words hold no bit that the target lacks, and cover its levels.
        let refused = refrain_packet::launch::refused_gcr_bits(target);
        for word in [row.head_acquire, row.agent_acquire, row.vector_acquire] {
            assert_eq!(word.value & refused, 0, "{target} {:#x}", word.value);
            assert_eq!(word.value & 0x200 != 0, row.gl1.value, "{target}");
        }
        assert!(row.facts().iter().all(|fact| !fact.3.is_empty()));
    }
    assert_eq!(Gfx::from_name("gfx906"), None);
    assert_eq!(Gfx::from_elf_mach(0), None);
}

#[test]
fn the_reader_owns_no_heap() {
    // Copy types cannot own memory, and the source names no owning type.
    fn copy<T: Copy>() {}
    copy::<refrain_packet::decode::Located<'static>>();
    copy::<refrain_packet::decode::DecodeError>();
    copy::<refrain_packet::aql::decode::Decoded>();
    for source in [
        include_str!("../src/decode.rs"),
        include_str!("../src/aql/decode.rs"),
    ] {
        for word in [
            "Vec<", "vec!", "String", "Box", "format!", "collect", "to_owned", "to_vec",
        ] {
            assert!(!source.contains(word), "{word}");
        }
    }
}

#[test]
fn vendor_packet_resolves_to_the_bound_encoding() {
    use refrain_packet::aql::{Header, PacketType, Pm4Ib, encode_vendor};
    let free = encode_vendor(Gfx::Gfx1201, 96).unwrap();
    let bindings = Bindings {
        ibs: &[0x7F00_1234_5000],
        signals: &[0x7F00_0000_0040],
        ..Bindings::default()
    };
    let packet = Pm4Ib {
        address: 0x7F00_1234_5000,
        dwords: 96,
        policy: 0,
        completion_signal: 0x7F00_0000_0040,
    };
    let want = aql::pm4_ib(Header::system(PacketType::VendorSpecific), &packet).unwrap();
    assert_eq!(free.resolve(&bindings).unwrap(), want.words());
    assert!(encode_vendor(Gfx::Gfx1201, 0).is_err());
}
