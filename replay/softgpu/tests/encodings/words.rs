//! Instruction words made from the field layouts of AMD's ISA documents, not by the decoder under
//! test: for each opcode several operand patterns, each with alternatives for the fields that an
//! opcode may restrict or lack. LLVM says which of them are instructions.

use refrain_softgpu::isa::{Format, Generation, Target};

/// A literal that shows in both halves.
const LITERAL: u32 = 0x1234_5678;
/// A literal that a 16-bit operand can hold, so that its text names all of it.
const HALF_LITERAL: u32 = 0x0000_5678;
/// Candidates of one pattern that LLVM is asked about.
const MOST: usize = 36;
/// Marker of a DPP16 word, and of a DPP8 word, in source 0.
const DPP16: u32 = 250;
const DPP8: u32 = 233;
/// Source codes: a literal follows, `null`, `m0`, `exec_lo`.
const LIT: u32 = 255;
const NULL: u32 = 124;

/// One field of an instruction: word, lowest bit, width, and values in the order of preference.
struct Field(usize, u32, u32, &'static [u32]);

/// An operand pattern: its fields, and words that follow.
struct Pattern {
    fields: &'static [Field],
    tail: &'static [u32],
}

const fn plain(fields: &'static [Field]) -> Pattern {
    Pattern { fields, tail: &[] }
}

const fn with(fields: &'static [Field], tail: &'static [u32]) -> Pattern {
    Pattern { fields, tail }
}

/// A DPP16 word: row mask, bank mask, modifiers [23:20], bound_ctrl, fi, control, register.
const fn dpp16(masks: u32, mods: u32, flags: u32, ctrl: u32, register: u32) -> u32 {
    masks << 24 | mods << 20 | flags << 18 | ctrl << 8 | register
}

/// A DPP8 word.
const fn dpp8(select: u32, register: u32) -> u32 {
    select << 8 | register
}

#[rustfmt::skip]
const SOP1: &[Pattern] = &[
    plain(&[Field(0, 16, 7, &[8, 0]), Field(0, 0, 8, &[4, 0, 131, 193])]),
    plain(&[Field(0, 16, 7, &[106, 0]), Field(0, 0, 8, &[193, 125, 132])]),
    with(&[Field(0, 16, 7, &[20, 0]), Field(0, 0, 8, &[LIT])], &[LITERAL]),
    plain(&[Field(0, 16, 7, &[124, 0]), Field(0, 0, 8, &[126, 195])]),
    plain(&[Field(0, 16, 7, &[126, 0]), Field(0, 0, 8, &[242, 128, 196])]),
    plain(&[Field(0, 16, 7, &[116, 0]), Field(0, 0, 8, &[253, 106])]),
];

#[rustfmt::skip]
const SOP2: &[Pattern] = &[
    plain(&[Field(0, 16, 7, &[8]), Field(0, 0, 8, &[4]), Field(0, 8, 8, &[12])]),
    plain(&[Field(0, 16, 7, &[106]), Field(0, 0, 8, &[193]), Field(0, 8, 8, &[104])]),
    with(&[Field(0, 16, 7, &[20]), Field(0, 0, 8, &[LIT, 4]), Field(0, 8, 8, &[12])], &[LITERAL]),
    with(&[Field(0, 16, 7, &[20]), Field(0, 0, 8, &[6]), Field(0, 8, 8, &[LIT, 4])], &[LITERAL]),
    plain(&[Field(0, 16, 7, &[124]), Field(0, 0, 8, &[126]), Field(0, 8, 8, &[248])]),
];

#[rustfmt::skip]
const SOPC: &[Pattern] = &[
    plain(&[Field(0, 0, 8, &[4]), Field(0, 8, 8, &[12])]),
    plain(&[Field(0, 0, 8, &[193]), Field(0, 8, 8, &[106])]),
    with(&[Field(0, 0, 8, &[LIT]), Field(0, 8, 8, &[12])], &[LITERAL]),
    with(&[Field(0, 0, 8, &[126]), Field(0, 8, 8, &[LIT])], &[LITERAL]),
    plain(&[Field(0, 0, 8, &[240]), Field(0, 8, 8, &[124])]),
];

#[rustfmt::skip]
const SOPK: &[Pattern] = &[
    with(&[Field(0, 16, 7, &[8, 124, 0]), Field(0, 0, 16, &[1, 0xf801])], &[LITERAL]),
    plain(&[Field(0, 16, 7, &[8, 124, 0]), Field(0, 0, 16, &[1, 0xf801])]),
    plain(&[Field(0, 16, 7, &[106, 0, 124]), Field(0, 0, 16, &[0x8001, 0x1845])]),
    plain(&[Field(0, 16, 7, &[4, 0, 124]), Field(0, 0, 16, &[0x7fff, 0x10c4])]),
    with(&[Field(0, 16, 7, &[8, 124, 0]), Field(0, 0, 16, &[0x1845, 0xf811])], &[0xffff_ffff]),
    with(&[Field(0, 16, 7, &[0]), Field(0, 0, 16, &[0x10c4, 0xf81d])], &[3]),
];

/// Every value is compared; the first of each line is listed.
#[rustfmt::skip]
const SOPP: &[Pattern] = &[
    plain(&[Field(0, 0, 16, &[0, 3, 9, 0x0fff, 0xff9f])]),
    plain(&[Field(0, 0, 16, &[7, 1, 2, 0x0091, 0x01a3, 0x03f7, 0xfc07, 0x0082])]),
    plain(&[Field(0, 0, 16, &[0xfff0, 64, 65, 0x1234, 0x8003, 0xffff, 0x07ff, 0xff87, 0xff8f])]),
];

#[rustfmt::skip]
const SMEM11: &[Pattern] = &[
    plain(&[Field(0, 6, 7, &[16, 0]), Field(0, 0, 6, &[2, 0]), Field(1, 0, 21, &[0x18, 0]), Field(1, 25, 7, &[NULL])]),
    plain(&[Field(0, 6, 7, &[20, 0]), Field(0, 0, 6, &[4, 0]), Field(1, 0, 21, &[0]), Field(1, 25, 7, &[NULL, 0])]),
    plain(&[Field(0, 6, 7, &[24, 0]), Field(0, 0, 6, &[6, 0]), Field(1, 0, 21, &[0x10, 0]), Field(1, 25, 7, &[7, NULL])]),
    plain(&[Field(0, 6, 7, &[96, 0]), Field(0, 0, 6, &[8, 0]), Field(1, 0, 21, &[0x1f_fff8, 0xffff8]), Field(1, 25, 7, &[NULL]), Field(0, 13, 2, &[3, 0])]),
    plain(&[Field(0, 6, 7, &[4, 0]), Field(0, 0, 6, &[10, 0]), Field(1, 0, 21, &[0]), Field(1, 25, 7, &[125, 106]), Field(0, 14, 1, &[1, 0])]),
];

#[rustfmt::skip]
const SMEM12: &[Pattern] = &[
    plain(&[Field(0, 6, 7, &[16, 0]), Field(0, 0, 6, &[2, 0]), Field(1, 0, 24, &[0x18, 0]), Field(1, 25, 7, &[NULL])]),
    plain(&[Field(0, 6, 7, &[20, 0]), Field(0, 0, 6, &[4, 0]), Field(1, 0, 24, &[0]), Field(1, 25, 7, &[NULL, 0])]),
    plain(&[Field(0, 6, 7, &[24, 0]), Field(0, 0, 6, &[6, 0]), Field(1, 0, 24, &[0x10, 0]), Field(1, 25, 7, &[7, NULL])]),
    plain(&[Field(0, 6, 7, &[32, 0]), Field(0, 0, 6, &[8, 0]), Field(1, 0, 24, &[0xff_fff8, 0x7f_fff8]), Field(1, 25, 7, &[NULL]), Field(0, 21, 4, &[0b0110, 0])]),
    plain(&[Field(0, 6, 7, &[4, 0]), Field(0, 0, 6, &[10, 0]), Field(1, 0, 24, &[0]), Field(1, 25, 7, &[125, 106]), Field(0, 21, 4, &[0b1111, 0b1001, 0])]),
];

#[rustfmt::skip]
const VOP1: &[Pattern] = &[
    plain(&[Field(0, 17, 8, &[4, 0]), Field(0, 0, 9, &[256 + 6, 0])]),
    plain(&[Field(0, 17, 8, &[100, 0]), Field(0, 0, 9, &[193, 256 + 9, 0])]),
    with(&[Field(0, 17, 8, &[5, 4]), Field(0, 0, 9, &[LIT])], &[LITERAL]),
    with(&[Field(0, 17, 8, &[4]), Field(0, 0, 9, &[DPP16])], &[dpp16(0xff, 0, 2, 0x164, 6)]),
    with(&[Field(0, 17, 8, &[4]), Field(0, 0, 9, &[DPP8])], &[dpp8(0xfa_c688, 6)]),
    plain(&[Field(0, 17, 8, &[6, 0]), Field(0, 0, 9, &[8, 126, 256 + 100])]),
    plain(&[Field(0, 17, 8, &[8, 0]), Field(0, 0, 9, &[248, 256 + 127])]),
    with(&[Field(0, 17, 8, &[7]), Field(0, 0, 9, &[DPP16])], &[dpp16(0x5a, 0b0011, 1, 0x1b, 9)]),
    with(&[Field(0, 17, 8, &[7]), Field(0, 0, 9, &[DPP8 + 1])], &[dpp8(0x05_3977, 9)]),
];

#[rustfmt::skip]
const VOP2: &[Pattern] = &[
    with(&[Field(0, 17, 8, &[4]), Field(0, 9, 8, &[10]), Field(0, 0, 9, &[256 + 6])], &[LITERAL]),
    plain(&[Field(0, 17, 8, &[4]), Field(0, 9, 8, &[10]), Field(0, 0, 9, &[256 + 6])]),
    plain(&[Field(0, 17, 8, &[100]), Field(0, 9, 8, &[120]), Field(0, 0, 9, &[193])]),
    with(&[Field(0, 17, 8, &[4]), Field(0, 9, 8, &[10]), Field(0, 0, 9, &[LIT, 8])], &[LITERAL]),
    with(&[Field(0, 17, 8, &[4]), Field(0, 9, 8, &[10]), Field(0, 0, 9, &[DPP16])], &[dpp16(0xff, 0, 2, 0x164, 6)]),
    with(&[Field(0, 17, 8, &[4]), Field(0, 9, 8, &[10]), Field(0, 0, 9, &[DPP8])], &[dpp8(0xfa_c688, 6)]),
    with(&[Field(0, 17, 8, &[90]), Field(0, 9, 8, &[91]), Field(0, 0, 9, &[256 + 92, 242])], &[0x3fc0_0000]),
    with(&[Field(0, 17, 8, &[7]), Field(0, 9, 8, &[11]), Field(0, 0, 9, &[DPP16])], &[
        dpp16(0x5a, 0b0110, 1, 0x111, 9),
    ]),
    plain(&[Field(0, 17, 8, &[8]), Field(0, 9, 8, &[12]), Field(0, 0, 9, &[106])]),
];

#[rustfmt::skip]
const VOPC: &[Pattern] = &[
    plain(&[Field(0, 9, 8, &[10]), Field(0, 0, 9, &[256 + 6])]),
    plain(&[Field(0, 9, 8, &[120]), Field(0, 0, 9, &[193])]),
    with(&[Field(0, 9, 8, &[10]), Field(0, 0, 9, &[LIT])], &[LITERAL]),
    with(&[Field(0, 9, 8, &[10]), Field(0, 0, 9, &[DPP16])], &[dpp16(0xff, 0, 2, 0x164, 6)]),
    with(&[Field(0, 9, 8, &[10]), Field(0, 0, 9, &[DPP8])], &[dpp8(0xfa_c688, 6)]),
    with(&[Field(0, 9, 8, &[11]), Field(0, 0, 9, &[DPP16])], &[dpp16(0x5a, 0b0011, 1, 0x141, 9)]),
    plain(&[Field(0, 9, 8, &[12]), Field(0, 0, 9, &[8])]),
];

/// Destination, sources, neg, abs, op_sel, clamp, omod.
const VOP3: &[Pattern] = &[
    plain(&[
        Field(0, 0, 8, &[4, 126, 0]),
        Field(1, 0, 9, &[256 + 6, 4, 0]),
        Field(1, 9, 9, &[256 + 10, 8, 0]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[104, 126]),
        Field(1, 0, 9, &[256 + 200, 4]),
        Field(1, 9, 9, &[193, 8, 256 + 12, 0]),
        Field(1, 18, 9, &[242, 20, 0]),
    ]),
    with(
        &[
            Field(0, 0, 8, &[4, 126]),
            Field(1, 0, 9, &[LIT]),
            Field(1, 9, 9, &[256 + 11, 8, 0]),
            Field(1, 18, 9, &[256 + 14, 20, 0]),
        ],
        &[LITERAL],
    ),
    plain(&[
        Field(0, 0, 8, &[8, 126]),
        Field(1, 0, 9, &[256 + 6, 4]),
        Field(1, 9, 9, &[256 + 10, 8, 0]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
        Field(1, 29, 3, &[7, 3, 1, 2]),
        Field(0, 8, 3, &[0b101, 1, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[8, 126]),
        Field(1, 0, 9, &[6, 256 + 6]),
        Field(1, 9, 9, &[256 + 10, 6, 0]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
        Field(0, 11, 4, &[0b1010, 0b1000, 0b0011, 0b0001, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[6, 126]),
        Field(1, 0, 9, &[240, 256 + 6]),
        Field(1, 9, 9, &[106, 256 + 10, 0]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
        Field(0, 15, 1, &[1, 0]),
        Field(1, 27, 2, &[3, 1, 0]),
    ]),
    with(
        &[
            Field(0, 0, 8, &[4, 126]),
            Field(1, 0, 9, &[DPP16]),
            Field(1, 9, 9, &[256 + 11, 0, 8]),
            Field(1, 18, 9, &[256 + 14, 20, 0]),
            Field(1, 29, 3, &[1, 0]),
        ],
        &[dpp16(0xff, 0, 2, 0x164, 6)],
    ),
    with(
        &[
            Field(0, 0, 8, &[4, 126]),
            Field(1, 0, 9, &[DPP8]),
            Field(1, 9, 9, &[256 + 11, 0, 8]),
            Field(1, 18, 9, &[256 + 14, 20, 0]),
            Field(0, 15, 1, &[1, 0]),
        ],
        &[dpp8(0xfa_c688, 6)],
    ),
];

/// VOP3 with a scalar destination.
const VOP3SD: &[Pattern] = &[
    plain(&[
        Field(0, 0, 8, &[4]),
        Field(0, 8, 7, &[12]),
        Field(1, 0, 9, &[256 + 6]),
        Field(1, 9, 9, &[256 + 10]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[104]),
        Field(0, 8, 7, &[106]),
        Field(1, 0, 9, &[193]),
        Field(1, 9, 9, &[256 + 100]),
        Field(1, 18, 9, &[8, 256 + 14, 0]),
        Field(0, 15, 1, &[1, 0]),
    ]),
    with(
        &[
            Field(0, 0, 8, &[4]),
            Field(0, 8, 7, &[NULL]),
            Field(1, 0, 9, &[256 + 6]),
            Field(1, 9, 9, &[LIT]),
            Field(1, 18, 9, &[256 + 14, 20, 0]),
        ],
        &[LITERAL],
    ),
    plain(&[
        Field(0, 0, 8, &[8]),
        Field(0, 8, 7, &[2]),
        Field(1, 0, 9, &[256 + 6]),
        Field(1, 9, 9, &[256 + 10]),
        Field(1, 18, 9, &[256 + 14, 20, 0]),
        Field(1, 29, 3, &[5, 1, 0]),
        Field(1, 27, 2, &[2, 0]),
    ]),
    with(
        &[
            Field(0, 0, 8, &[4]),
            Field(0, 8, 7, &[12]),
            Field(1, 0, 9, &[DPP16]),
            Field(1, 9, 9, &[256 + 11]),
            Field(1, 18, 9, &[20, 0]),
        ],
        &[dpp16(0xff, 0, 2, 0x164, 6)],
    ),
];

/// Destination, sources, op_sel_hi (three bits in two fields), op_sel, neg, neg_hi, clamp.
const VOP3P: &[Pattern] = &[
    plain(&[
        Field(0, 0, 8, &[8]),
        Field(1, 0, 9, &[256 + 16]),
        Field(1, 9, 9, &[256 + 24]),
        Field(1, 18, 9, &[256 + 32, 0]),
        Field(1, 27, 2, &[3]),
        Field(0, 14, 1, &[1, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[8]),
        Field(1, 0, 9, &[193, 256 + 16]),
        Field(1, 9, 9, &[256 + 24]),
        Field(1, 18, 9, &[242, 256 + 32, 0]),
        Field(1, 27, 2, &[0, 3]),
        Field(0, 14, 1, &[1, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[8]),
        Field(1, 0, 9, &[256 + 16]),
        Field(1, 9, 9, &[12, 256 + 24]),
        Field(1, 18, 9, &[256 + 32, 0]),
        Field(1, 27, 2, &[1, 3]),
        Field(0, 14, 1, &[0, 1]),
        Field(0, 11, 3, &[5, 2, 1, 0]),
        Field(0, 15, 1, &[1, 0]),
    ]),
    plain(&[
        Field(0, 0, 8, &[8]),
        Field(1, 0, 9, &[256 + 16]),
        Field(1, 9, 9, &[256 + 24]),
        Field(1, 18, 9, &[256 + 32, 0]),
        Field(1, 27, 2, &[3, 0]),
        Field(0, 14, 1, &[1, 0]),
        Field(1, 29, 3, &[5, 3, 1, 0]),
        Field(0, 8, 3, &[6, 2, 0]),
    ]),
    with(
        &[
            Field(0, 0, 8, &[8]),
            Field(1, 0, 9, &[LIT]),
            Field(1, 9, 9, &[256 + 24]),
            Field(1, 18, 9, &[256 + 32, 0]),
            Field(1, 27, 2, &[3]),
            Field(0, 14, 1, &[1, 0]),
        ],
        &[LITERAL],
    ),
    with(
        &[
            Field(0, 0, 8, &[8]),
            Field(1, 0, 9, &[DPP16]),
            Field(1, 9, 9, &[256 + 24]),
            Field(1, 18, 9, &[256 + 32, 0]),
            Field(1, 27, 2, &[3, 0]),
            Field(0, 14, 1, &[1, 0]),
        ],
        &[dpp16(0xff, 0, 2, 0x164, 6)],
    ),
    with(
        &[
            Field(0, 0, 8, &[8]),
            Field(1, 0, 9, &[DPP8]),
            Field(1, 9, 9, &[256 + 24]),
            Field(1, 18, 9, &[256 + 32, 0]),
            Field(1, 27, 2, &[3, 0]),
            Field(0, 14, 1, &[1, 0]),
        ],
        &[dpp8(0xfa_c688, 6)],
    ),
];

/// The Y half carries the opcode; X is a plain multiply. Sources sit in different banks.
#[rustfmt::skip]
const VOPD_Y: &[Pattern] = &[
    with(&[Field(0, 0, 9, &[256 + 6]), Field(0, 9, 8, &[10]), Field(1, 0, 9, &[256 + 7]), Field(1, 9, 8, &[11, 0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[4])], &[LITERAL]),
    plain(&[Field(0, 0, 9, &[256 + 6]), Field(0, 9, 8, &[10]), Field(1, 0, 9, &[256 + 7]), Field(1, 9, 8, &[11, 0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[4])]),
    with(&[Field(0, 0, 9, &[242]), Field(0, 9, 8, &[10]), Field(1, 0, 9, &[8, 256 + 7]), Field(1, 9, 8, &[11, 0]), Field(1, 17, 7, &[100]), Field(1, 24, 8, &[5])], &[LITERAL]),
    plain(&[Field(0, 0, 9, &[242]), Field(0, 9, 8, &[10]), Field(1, 0, 9, &[8, 256 + 7]), Field(1, 9, 8, &[11, 0]), Field(1, 17, 7, &[100]), Field(1, 24, 8, &[5])]),
    with(&[Field(0, 0, 9, &[256 + 5]), Field(0, 9, 8, &[10]), Field(1, 0, 9, &[LIT, 8]), Field(1, 9, 8, &[11, 0]), Field(1, 17, 7, &[9]), Field(1, 24, 8, &[4])], &[LITERAL]),
];

/// The X half carries the opcode; Y is a plain move.
#[rustfmt::skip]
const VOPD_X: &[Pattern] = &[
    with(&[Field(0, 0, 9, &[256 + 6]), Field(0, 9, 8, &[10, 0]), Field(1, 0, 9, &[256 + 7]), Field(1, 9, 8, &[0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[4])], &[LITERAL]),
    plain(&[Field(0, 0, 9, &[256 + 6]), Field(0, 9, 8, &[10, 0]), Field(1, 0, 9, &[256 + 7]), Field(1, 9, 8, &[0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[4])]),
    plain(&[Field(0, 0, 9, &[193]), Field(0, 9, 8, &[10, 0]), Field(1, 0, 9, &[4]), Field(1, 9, 8, &[0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[5])]),
    with(&[Field(0, 0, 9, &[LIT]), Field(0, 9, 8, &[10, 0]), Field(1, 0, 9, &[LIT, 128]), Field(1, 9, 8, &[0]), Field(1, 17, 7, &[4]), Field(1, 24, 8, &[5])], &[LITERAL]),
];

/// Offset; address, data0, data1, destination.
#[rustfmt::skip]
const DS: &[Pattern] = &[
    plain(&[Field(0, 0, 16, &[0]), Field(1, 0, 8, &[10, 0]), Field(1, 8, 8, &[20, 0]), Field(1, 16, 8, &[30, 0]), Field(1, 24, 8, &[40, 0])]),
    plain(&[Field(0, 0, 16, &[0x10, 0]), Field(1, 0, 8, &[11, 0]), Field(1, 8, 8, &[21, 0]), Field(1, 16, 8, &[31, 0]), Field(1, 24, 8, &[41, 0])]),
    plain(&[Field(0, 0, 16, &[0x0804, 0xffff, 0x8055, 0x041f, 0x401f, 0]), Field(1, 0, 8, &[255, 0]), Field(1, 8, 8, &[120, 0]), Field(1, 16, 8, &[130, 0]), Field(1, 24, 8, &[140, 0])]),
];

/// Segment, offset, cache; address, data, scalar address, SVE, destination.
#[rustfmt::skip]
const FLAT11: &[Pattern] = &[
    plain(&[Field(0, 0, 13, &[0]), Field(1, 0, 8, &[10, 0]), Field(1, 8, 8, &[20, 0]), Field(1, 16, 7, &[NULL]), Field(1, 23, 1, &[0, 1]), Field(1, 24, 8, &[40, 0]), Field(0, 14, 1, &[0, 1])]),
    plain(&[Field(0, 0, 13, &[16]), Field(1, 0, 8, &[12, 0]), Field(1, 8, 8, &[22, 0]), Field(1, 16, 7, &[4, 106, NULL]), Field(1, 23, 1, &[0]), Field(1, 24, 8, &[42, 0]), Field(0, 14, 1, &[1, 0])]),
    plain(&[Field(0, 0, 13, &[0x1ff8, 0xff8]), Field(1, 0, 8, &[254, 0]), Field(1, 8, 8, &[100, 0]), Field(1, 16, 7, &[6, NULL]), Field(1, 23, 1, &[1, 0]), Field(1, 24, 8, &[140, 0]), Field(0, 13, 3, &[0b101, 0b111])]),
    plain(&[Field(0, 0, 13, &[8, 0xff8]), Field(1, 0, 8, &[254, 0]), Field(1, 8, 8, &[100, 0]), Field(1, 16, 7, &[NULL]), Field(1, 23, 1, &[1, 0]), Field(1, 24, 8, &[140, 0]), Field(0, 13, 3, &[0b100, 0b110])]),
];

#[rustfmt::skip]
const FLAT12: &[Pattern] = &[
    plain(&[Field(2, 8, 24, &[0]), Field(2, 0, 8, &[10, 0]), Field(1, 23, 8, &[20, 0]), Field(0, 0, 7, &[NULL]), Field(1, 17, 1, &[0, 1]), Field(1, 0, 8, &[40, 0]), Field(1, 20, 1, &[0, 1])]),
    plain(&[Field(2, 8, 24, &[16, 0]), Field(2, 0, 8, &[12, 0]), Field(1, 23, 8, &[22, 0]), Field(0, 0, 7, &[4, 106, NULL]), Field(1, 17, 1, &[0]), Field(1, 0, 8, &[42, 0]), Field(1, 18, 5, &[0b00110, 0b00001, 0])]),
    plain(&[Field(2, 8, 24, &[0xff_fff8, 0]), Field(2, 0, 8, &[254, 0]), Field(1, 23, 8, &[100, 0]), Field(0, 0, 7, &[6, NULL]), Field(1, 17, 1, &[1, 0]), Field(1, 0, 8, &[140, 0]), Field(1, 18, 5, &[0b01111, 0b00111, 0b01000])]),
    plain(&[Field(2, 8, 24, &[8, 0]), Field(2, 0, 8, &[254, 0]), Field(1, 23, 8, &[100, 0]), Field(0, 0, 7, &[NULL]), Field(1, 17, 1, &[1, 0]), Field(1, 0, 8, &[140, 0]), Field(1, 18, 5, &[0b10010, 0b00100, 0b10100, 0b11000, 0b11111])]),
];

const MUBUF: &[Pattern] = &[plain(&[])];

/// Encoding of a family: fixed bits of the first word, number of words, opcode shift, patterns.
type Layout = (u32, usize, u32, &'static [Pattern]);

fn layouts(target: Target, format: Format) -> Vec<Layout> {
    let gfx12 = target.generation() == Generation::Gfx12;
    let flat = |segment: u32| {
        if gfx12 {
            (0b11_1011 << 26 | segment << 24, 3, 14, FLAT12)
        } else {
            (0b11_0111 << 26 | segment << 16, 2, 18, FLAT11)
        }
    };
    match format {
        Format::Sop1 => vec![(0b1_0111_1101 << 23, 1, 8, SOP1)],
        Format::Sop2 => vec![(0b10 << 30, 1, 23, SOP2)],
        Format::Sopc => vec![(0b1_0111_1110 << 23, 1, 16, SOPC)],
        Format::Sopk => vec![(0b1011 << 28, 1, 23, SOPK)],
        Format::Sopp => vec![(0b1_0111_1111 << 23, 1, 16, SOPP)],
        Format::Smem if gfx12 => vec![(0b11_1101 << 26, 2, 13, SMEM12)],
        Format::Smem => vec![(0b11_1101 << 26, 2, 18, SMEM11)],
        Format::Vop1 => vec![(0b011_1111 << 25, 1, 9, VOP1)],
        Format::Vop2 => vec![(0, 1, 25, VOP2)],
        Format::Vopc => vec![(0b011_1110 << 25, 1, 17, VOPC)],
        Format::Vop3 => vec![(0b11_0101 << 26, 2, 16, VOP3)],
        Format::Vop3sd => vec![(0b11_0101 << 26, 2, 16, VOP3SD)],
        Format::Vop3p => vec![(0b1100_1100 << 24, 2, 16, VOP3P)],
        Format::Vopd => vec![
            (0b11_0010 << 26 | 3 << 22, 2, 17, VOPD_Y),
            (0b11_0010 << 26 | 8 << 17, 2, 22, VOPD_X),
        ],
        Format::Ds => vec![(0b11_0110 << 26, 2, 18, DS)],
        Format::Flat => vec![flat(0)],
        Format::Scratch => vec![flat(1)],
        Format::Global => vec![flat(2)],
        Format::Mubuf => vec![(0b11_1000 << 26, 2, 18, MUBUF)],
    }
}

/// All values of one pattern: the product of the alternatives, preferred ones first.
fn expand(base: u32, words: usize, pattern: &Pattern) -> Vec<Vec<u32>> {
    let mut first = vec![0; words];
    first[0] = base;
    let mut all = vec![(0, first)];
    for Field(word, lo, width, values) in pattern.fields {
        let mut next = Vec::new();
        for (deviation, words) in &all {
            for (k, value) in values.iter().enumerate() {
                let mut words = words.clone();
                words[*word] |= (value & ((1 << width) - 1)) << lo;
                next.push((deviation + k, words));
            }
        }
        all = next;
    }
    all.sort_by_key(|(deviation, _)| *deviation);
    let tails: &[&[u32]] = match pattern.tail {
        [LITERAL] => &[&[LITERAL], &[HALF_LITERAL]],
        tail => &[tail],
    };
    all.into_iter()
        .take(MOST)
        .flat_map(|(_, words)| tails.iter().map(move |tail| [&words[..], tail].concat()))
        .collect()
}

/// The encodings of one opcode field value in a format: per pattern, the candidates.
pub fn patterns(target: Target, format: Format, opcode: u32) -> Vec<Vec<Vec<u32>>> {
    layouts(target, format)
        .into_iter()
        .filter(|(_, _, shift, _)| !(format == Format::Vopd && *shift == 22 && opcode > 15))
        .flat_map(|(base, words, shift, patterns)| {
            let base = base | opcode << shift;
            patterns.iter().map(move |p| expand(base, words, p))
        })
        .collect()
}

/// The forms of a table row: its own format, and the long form of one-word vector instructions.
pub fn forms(format: Format, opcode: u16) -> Vec<(Format, u32)> {
    let opcode = u32::from(opcode);
    let own = (format, opcode);
    match format {
        Format::Vop1 => vec![own, (Format::Vop3, 0x180 + opcode)],
        Format::Vop2 if (0x20..=0x22).contains(&opcode) => {
            vec![own, (Format::Vop3sd, 0x100 + opcode)]
        }
        Format::Vop2 => vec![own, (Format::Vop3, 0x100 + opcode)],
        Format::Vopc => vec![own, (Format::Vop3, opcode)],
        _ => vec![own],
    }
}
