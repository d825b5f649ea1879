use super::*;
use crate::generator::{Generator, Profile};
use crate::service::ModelService;
use crate::shrink::shrink;

fn run(ops: usize, seed: u64) -> Vec<Op> {
    let service = ModelService::default();
    let mut pair = Lockstep::new(&service, &NoControl).expect("starts");
    let mut generator = Generator::new(seed, Profile::default());
    let mut done = Vec::new();
    for _ in 0..ops {
        let op = generator.next(&pair.model);
        let _outcome = pair.step(&op).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        done.push(op);
    }
    pair.check_tree().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    done
}

/// The model agrees with itself, and the sequences do what they are for.
#[test]
fn the_model_agrees_with_itself() {
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for seed in 0..40 {
        for op in run(300, seed) {
            let text = format!("{op:?}");
            let kind = text.split_whitespace().find(|w| w.chars().all(char::is_alphabetic));
            *kinds.entry(kind.unwrap_or("other").to_string()).or_default() += 1;
        }
    }
    for kind in ["create", "rename", "unlink", "rmdir", "link", "write", "append", "commit"] {
        assert!(kinds.get(kind).is_some_and(|n| *n > 50), "{kind} in {kinds:?}");
    }
}

#[test]
fn a_seed_is_a_sequence() {
    let show = |ops: Vec<Op>| format!("{ops:?}");
    assert_eq!(show(run(100, 7)), show(run(100, 7)));
    assert_ne!(show(run(100, 7)), show(run(100, 8)));
}

#[test]
fn shrinking_keeps_what_fails() {
    let ops = run(100, 3);
    let short = shrink(ops, |ops| ops.iter().any(|o| o.id == 17) && ops.iter().any(|o| o.id == 60));
    assert_eq!(short.iter().map(|o| o.id).collect::<Vec<_>>(), [17, 60]);
}

/// Answers of a file service that is wrong in one way: it forgets half of every write.
struct Wrong(ModelService);

impl FileService for Wrong {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        let Request::Write { file, offset, data, append, kill_priv, times } = req else {
            return self.0.call(cred, req);
        };
        let len = u32::try_from(data.len()).expect("short");
        let data = data.into_bytes();
        let data = data[..data.len() / 2].to_vec().into();
        let half = Request::Write { file, offset, data, append, kill_priv, times };
        self.0.call(cred, half)?;
        Ok(Reply::Written { len })
    }
}

#[test]
fn a_wrong_service_is_found() {
    let service = Wrong(ModelService::default());
    let mut pair = Lockstep::new(&service, &NoControl).expect("starts");
    let mut generator = Generator::new(1, Profile::default());
    let found = (0..300).any(|_| {
        let op = generator.next(&pair.model);
        pair.step(&op).is_err()
    });
    assert!(found || pair.check_tree().is_err());
}
