//! Scale and minimum of a group of codes, from the parameters of its block.
//!
//! Every scale here is exact in f32: the product of an f16 and an integer of at most 8 bits.

use half::f16;

use super::Params;

fn half(params: &Params, at: usize) -> f32 {
    f16::from_le_bytes([params[at], params[at + 1]]).to_f32()
}

fn single(params: &Params, at: usize) -> f32 {
    f32::from_le_bytes([params[at], params[at + 1], params[at + 2], params[at + 3]])
}

/// f16 d.
pub(super) fn d(params: &Params, _: usize) -> (f32, f32) {
    (half(params, 0), 0.0)
}

/// f16 d, f16 m.
pub(super) fn dm(params: &Params, _: usize) -> (f32, f32) {
    (half(params, 0), half(params, 2))
}

/// u8 e: 2^(e - 128), half of the format's 2^(e - 127) because its levels are doubled to be integers.
/// e = 255, which the OCP format calls NaN, is 2^127 as in ggml.
pub(super) fn e8m0(params: &Params, _: usize) -> (f32, f32) {
    let bits = match params[0] {
        e @ 0..2 => 0x0020_0000 << e,
        e => u32::from(e - 1) << 23,
    };
    (f32::from_bits(bits), 0.0)
}

/// Per 32 elements u8 scale and u8 minimum, then f16 d and f16 dmin.
pub(super) fn k_mins(params: &Params, group: usize) -> (f32, f32) {
    let (scale, min) = (params[2 * group], params[2 * group + 1]);
    let a = half(params, 16) * f32::from(scale);
    (a, -(half(params, 18) * f32::from(min)))
}

/// Per 16 elements i8 scale, then f16 d.
pub(super) fn k_signed(params: &Params, group: usize) -> (f32, f32) {
    let scale = params[group].cast_signed();
    (half(params, 16) * f32::from(scale), 0.0)
}

/// f32 scale, f32 zero.
pub(super) fn singles(params: &Params, _: usize) -> (f32, f32) {
    (single(params, 0), single(params, 4))
}

/// Per 128 elements f16 scale and f16 zero.
pub(super) fn halves(params: &Params, group: usize) -> (f32, f32) {
    (half(params, 4 * group), half(params, 4 * group + 2))
}
