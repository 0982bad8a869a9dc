//! The initial state of a wave (LLVM AMDGPUUsage, "Initial Kernel Execution State"; provenance:
//! documented). What the table does not set holds poison, never zero.
//!
//! | state | gfx11 | gfx12 |
//! |---|---|---|
//! | user SGPRs | s0.. from USER_DATA, as many as are loaded | same |
//! | work-group ids | SGPRs after RSRC2.USER_SGPR, each if its TGID_EN bit is set | TTMP9 = x, TTMP7 = z:y |
//! | TG_SIZE (RSRC2 bit 10) | next SGPR: waves in the group [5:0], ordinal of the wave [11:6] | same |
//! | v0 | x, y << 10, z << 20; parts beyond TIDIG_COMP_CNT are 0 | same |
//! | EXEC | one bit per work-item of the wave | same |
//! | MODE | RSRC1 [19:12] and FP16_OVFL, IEEE and DX10_CLAMP from bits 23 and 21 | RSRC1 [19:12] and FP16_OVFL |
//! | scratch | poison, private to each lane (architected: no SGPR names it) | same |
//! | SCC, VCC, M0, other SGPRs, TTMPs and VGPRs | poison | poison |

use super::Dispatch;
use super::wave::{Row, SCC_SLOT, State, Wave};
use crate::isa::Generation;
use crate::isa::operand::{EXEC, NULL, TTMP};

/// A word that is a signalling NaN as float and a wild value as address or count.
pub(super) const fn poison(seed: u64) -> u32 {
    0x7fa5_0001 | (mix(seed) as u32 & 0xfffe)
}

/// A well mixed 64-bit value (the finaliser of SplitMix64).
pub(super) const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills registers; a tenth of the time of a short wave.
fn fill(rows: &mut [Row], word: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(rows: &mut [Row], word: u32) {
            rows.as_flattened_mut().fill(word);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { wide(rows, word) };
        }
    }
    rows.as_flattened_mut().fill(word);
}

/// What all waves of one dispatch share.
pub(super) struct Start<'a> {
    pub(super) dispatch: &'a Dispatch,
    pub(super) entry: u32,
    /// Vector registers to poison.
    pub(super) vgprs: u32,
    pub(super) waves: u32,
    pub(super) poison: u32,
}

impl Start<'_> {
    /// Sets `w` to the start of wave `index` of work-group `group`.
    pub(super) fn wave(&self, w: &mut Wave, group: [u32; 3], index: u32) {
        let d = self.dispatch;
        let generation = d.program.target().generation();
        w.s.fill(self.poison);
        w.s[usize::from(NULL)] = 0;
        w.s[usize::from(SCC_SLOT)] = self.poison & 1;
        let loaded = (d.user_sgpr_count as usize).min(16);
        w.s[..loaded].copy_from_slice(&d.user_sgprs[..loaded]);
        self.system_sgprs(w, generation, group, index);
        let items = d.group_size.iter().product::<u32>();
        let left = items.saturating_sub(index * 32).min(32);
        w.s[usize::from(EXEC)] = ((1u64 << left) - 1) as u32;
        fill(
            &mut w.v[1..(self.vgprs as usize).clamp(1, 256)],
            self.poison,
        );
        w.v[0] = self.work_items(index);
        let fp = d.rsrc1 >> 12 & 0xff;
        let modes = match generation {
            Generation::Gfx11 => (d.rsrc1 >> 21 & 1) << 8 | (d.rsrc1 >> 23 & 1) << 9,
            // gfx12 has neither bit; clamping follows DX10 rules.
            Generation::Gfx12 => 1 << 8,
        };
        w.mode = fp | modes | (d.rsrc1 >> 26 & 1) << 23;
        w.vgprs = self.vgprs;
        w.private.reset(d.scratch_bytes, self.poison);
        w.pc = self.entry;
        w.index = index;
        w.count = 0;
        w.state = State::Ready;
        w.released = false;
    }

    fn system_sgprs(&self, w: &mut Wave, generation: Generation, group: [u32; 3], index: u32) {
        let d = self.dispatch;
        let mut next = (d.rsrc2 >> 1 & 31) as usize;
        let mut put = |w: &mut Wave, value: u32| {
            w.s[next & 127] = value;
            next += 1;
        };
        match generation {
            Generation::Gfx11 => {
                for (k, id) in group.into_iter().enumerate() {
                    if d.rsrc2 >> (7 + k) & 1 == 1 {
                        put(w, id);
                    }
                }
            }
            Generation::Gfx12 => {
                w.s[usize::from(TTMP) + 9] = group[0];
                w.s[usize::from(TTMP) + 7] = group[1] | group[2] << 16;
            }
        }
        if d.rsrc2 >> 10 & 1 == 1 {
            put(w, self.waves & 63 | (index & 63) << 6);
        }
    }

    fn work_items(&self, index: u32) -> [u32; 32] {
        let [sx, sy, _] = self.dispatch.group_size;
        let parts = self.dispatch.rsrc2 >> 11 & 3;
        if self.dispatch.group_size[1..] == [1, 1] {
            return std::array::from_fn(|lane| index * 32 + lane as u32);
        }
        std::array::from_fn(|lane| {
            let linear = index * 32 + lane as u32;
            let x = linear % sx;
            let y = if parts >= 1 { linear / sx % sy } else { 0 };
            let z = if parts >= 2 { linear / sx / sy } else { 0 };
            x | y << 10 | z << 20
        })
    }
}
