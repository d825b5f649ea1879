use crate::generator::{Generator, Profile};
use crate::lockstep::{Lockstep, NoControl};
use crate::op::Action;
use crate::service::ModelService;
use siftfs_proto::compound::{Compounded, Step};
use siftfs_proto::{Reply, Request};
use std::collections::BTreeMap;

fn kind(step: &Step) -> String {
    format!("{step:?}").split(' ').next().unwrap_or_default().to_string()
}

/// Every kind of step is carried out, root is not the only one who asks, and some compounds
/// are refused, but few.
#[test]
fn compounds_do_what_they_are_for() {
    let (mut kinds, mut users, mut done, mut refused) = (BTreeMap::new(), 0, 0, 0);
    for seed in 0..30 {
        let service = ModelService::default();
        let mut pair = Lockstep::new(&service, &NoControl).expect("starts");
        let profile = Profile { compounds: 60, ..Profile::default() };
        let mut generator = Generator::new(seed, profile);
        for _ in 0..150 {
            let op = generator.next(&pair.model);
            let outcome = pair.step(&op).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let Action::Call(cred, Request::Compound(compound)) = &op.action else { continue };
            match outcome {
                Ok(Reply::Compounded(Compounded::Done { .. })) => {
                    done += 1;
                    users += usize::from(cred.uid != 0);
                    for step in &compound.steps {
                        *kinds.entry(kind(step)).or_insert(0) += 1;
                    }
                }
                _ => refused += 1,
            }
        }
        pair.check_tree().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert_eq!(kinds.len(), 19, "{kinds:?}");
    assert!(kinds.values().all(|count| *count > 20), "{kinds:?}");
    assert!(users > 200 && refused > 50 && refused < done / 5, "{users} {refused} of {done}");
}
