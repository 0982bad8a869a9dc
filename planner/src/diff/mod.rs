//! What differs between two plans: the layers of identity, and in each the first field.
//!
//! Every layer is laid out as a list of facts; the first position at which two lists part is the
//! difference. Whether layers differ at all is `identity`'s word, not that of the facts: a layer
//! whose facts agree is told by its digests.

mod facts;

use crate::identity::{Identity, Layer, hex};
use crate::plan::{Plan, StepId};
use facts::Fact;

/// The first fact in which two plans part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where: `options`, `buffer 9`, `step 12 (blk.0.attn_q)`.
    pub place: String,
    /// Step, if it is about one.
    pub step: Option<StepId>,
    /// Which fact.
    pub field: String,
    /// Value in the first plan; `None` where that ends before.
    pub first: Option<String>,
    /// Value in the second plan; `None` where that ends before.
    pub second: Option<String>,
}

/// One layer that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerDifference {
    /// Layer.
    pub layer: Layer,
    /// The first fact that differs.
    pub first: Difference,
    /// The first step that differs, if that is not `first` itself.
    pub step: Option<Difference>,
}

/// Layers in which two plans differ, in the order of [`Layer::ALL`]; empty where they have one
/// identity.
pub fn diff(first: &Plan, second: &Plan) -> Vec<LayerDifference> {
    let (of_first, of_second) = (Identity::of(first), Identity::of(second));
    let of_layer = |layer: Layer| {
        let (a, b) = (facts::of(first, layer), facts::of(second, layer));
        let found = part(&a, &b).unwrap_or_else(|| Difference {
            place: "layer".to_owned(),
            step: None,
            field: "digest".to_owned(),
            first: Some(hex(of_first.layer(layer))),
            second: Some(hex(of_second.layer(layer))),
        });
        let step = match found.step {
            Some(_) => None,
            None => part(&steps(&a), &steps(&b)),
        };
        LayerDifference {
            layer,
            first: found,
            step,
        }
    };
    let differing = of_first.differing(&of_second);
    differing.into_iter().map(of_layer).collect()
}

fn steps(facts: &[Fact]) -> Vec<Fact> {
    let of_steps = facts.iter().filter(|fact| fact.step.is_some());
    of_steps.cloned().collect()
}

/// The first position at which two lists differ.
fn part(first: &[Fact], second: &[Fact]) -> Option<Difference> {
    let same = first.iter().zip(second).take_while(|(a, b)| a == b);
    let at = same.count();
    let (a, b) = (first.get(at), second.get(at));
    let named = a.or(b)?;
    let value = |fact: Option<&Fact>| {
        let fact = fact?;
        let same = (&fact.place, &fact.field) == (&named.place, &named.field);
        Some(if same {
            fact.value.clone()
        } else {
            format!("{}: {} {}", fact.place, fact.field, fact.value)
        })
    };
    Some(Difference {
        place: named.place.clone(),
        step: named.step,
        field: named.field.clone(),
        first: value(a),
        second: value(b),
    })
}
