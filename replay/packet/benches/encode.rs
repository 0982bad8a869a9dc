//! Time to encode and to lint a buffer of 700 launches.
#![allow(
    missing_docs,
    reason = "criterion's macros generate undocumented items"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use criterion::{Criterion, criterion_group, criterion_main};
use refrain_packet::Gfx;
use refrain_packet::pm4::{Policy, encode_ib};

fn bench(c: &mut Criterion) {
    let target = Gfx::Gfx1201;
    let images = common::images(target, 16);
    let launches = common::launches(target, 16, 700);
    for name in ["static", "elide"] {
        let Some(policy) = Policy::named(name) else {
            continue;
        };
        c.bench_function(&format!("encode 700 launches, {name}"), |b| {
            b.iter(|| encode_ib(target, policy, &images, &launches));
        });
    }
    let world = common::World::with(target, Policy::DEFAULT, 700);
    c.bench_function("lint 700 launches", |b| b.iter(|| world.lint_ib()));
}

criterion_group!(benches, bench);
criterion_main!(benches);
