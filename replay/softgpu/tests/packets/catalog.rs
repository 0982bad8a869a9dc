//! A kernel of the committed catalog on every target, by AQL and by PM4.

use crate::harness::{Ib, Rig, shipped};
use refrain_softgpu::SoftConfig;
use refrain_softgpu::isa::Target;

#[test]
fn embed_f32_copies_a_row() {
    const WIDTH: usize = 300;
    for target in Target::ALL {
        let rig = Rig::load(
            SoftConfig {
                threads: 2,
                ..SoftConfig::new(target)
            },
            shipped(target),
        );
        let table: Vec<u32> = (0..4 * WIDTH as u32)
            .map(|i| (i as f32 * 0.25).to_bits())
            .collect();
        let table_va = rig.memory("table", &table);
        // control.token is the first word.
        let control = rig.memory("control", &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let outs = [
            rig.memory("out", &[0; WIDTH + 20]),
            rig.memory("out", &[0; WIDTH + 20]),
        ];
        let kernargs = outs.map(|out| {
            let words = [table_va, control, out]
                .into_iter()
                .flat_map(|va| [va as u32, (va >> 32) as u32]);
            rig.memory("kernargs", &words.chain([WIDTH as u32]).collect::<Vec<_>>())
        });
        let signal = rig.gpu.create_signal(2).unwrap();
        let mut ib = Ib::default();
        ib.acquire(if target == Target::Gfx1201 {
            0x1_C1C1
        } else {
            0x1_C3F1
        });
        ib.state(&rig, "embed_f32", kernargs[1]).launch(2).flush();
        let va = rig.memory("ib", &ib.0);
        rig.run(
            &[
                rig.dispatch("embed_f32", 2, kernargs[0], signal),
                Rig::vendor(va, ib.0.len(), signal),
            ],
            signal,
        );
        let mut expected = table[2 * WIDTH..3 * WIDTH].to_vec();
        expected.resize(WIDTH + 20, 0);
        for out in outs {
            assert_eq!(rig.read(out, WIDTH + 20), expected, "{target}");
        }
    }
}
