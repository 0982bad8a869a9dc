//! The catalog's rows, a table per family. The sources in `kernels/hip` say what each kernel
//! computes, in which order; a fused kernel gives the bits of the plain kernels it stands for.

#[macro_use]
mod terms;
mod attention;
mod base;
mod cache;
mod gemv;
mod moe;
mod recurrent;

use crate::KernelRow;

static FAMILIES: [&[KernelRow]; 25] = [
    &base::ROWS,
    &base::TABLES,
    &gemv::PLAIN,
    &gemv::PLAIN_CORE,
    &gemv::ADD,
    &gemv::ADD_CORE,
    &gemv::BIAS,
    &gemv::BIAS_CORE,
    &gemv::SILU,
    &gemv::SILU_CORE,
    &gemv::GATED_ADD,
    &gemv::TWO,
    &gemv::THREE,
    &gemv::FOUR,
    &gemv::THREE_BIAS,
    &attention::ROWS,
    &cache::ROWS,
    &recurrent::ROWS,
    &moe::ROWS,
    &moe::GEMV,
    &moe::GEMV_CORE,
    &moe::GATE_UP,
    &moe::GATE_UP_CORE,
    &moe::DOWN,
    &moe::DOWN_CORE,
];

const COUNT: usize = {
    let (mut sum, mut i) = (0, 0);
    while i < FAMILIES.len() {
        sum += FAMILIES[i].len();
        i += 1;
    }
    sum
};

static ROWS_TABLE: [KernelRow; COUNT] = {
    let mut rows = [base::ROWS[0]; COUNT];
    let (mut next, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut i = 0;
        while i < FAMILIES[family].len() {
            rows[next] = FAMILIES[family][i];
            next += 1;
            i += 1;
        }
        family += 1;
    }
    rows
};

/// Every kernel.
#[must_use]
pub fn catalog() -> &'static [KernelRow] {
    &ROWS_TABLE
}
