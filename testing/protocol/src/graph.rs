//! The graph of all states, to show that it has no cycle.

use stateright::Model;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a walk over all states found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk<A> {
    /// States.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Most steps of one run.
    pub longest: usize,
    /// The steps of a run that ends where it was before, if there is one.
    pub cycle: Option<Vec<A>>,
}

/// A state on the present run.
struct Open<S, A> {
    id: u64,
    by: Option<A>,
    next: Vec<(A, S)>,
    /// Steps of the longest run from here, as far as known.
    below: usize,
}

/// Walks over all states of `model`, deeper first, until it meets a state of the present run again.
///
/// Without a cycle every run is finite, so a wait that is over in each state without a next step is
/// over on every run: the checker's `eventually` would not see that (it takes a state reached again
/// for one that was judged already).
pub fn walk<M>(model: &M) -> Walk<M::Action>
where
    M: Model<State: Hash, Action: Copy>,
{
    let mut walk = Walk { states: 0, steps: 0, longest: 0, cycle: None };
    // The longest run from a state that is done; nothing while it is on the present run.
    let mut seen: HashMap<u64, Option<usize>> = HashMap::new();
    for state in model.init_states() {
        let mut run = vec![open(model, &mut walk, &mut seen, None, &state)];
        while let Some(top) = run.last_mut() {
            let Some((action, state)) = top.next.pop() else {
                let done = run.pop().expect("just seen");
                seen.insert(done.id, Some(done.below));
                walk.longest = walk.longest.max(done.below);
                if let Some(above) = run.last_mut() {
                    above.below = above.below.max(done.below + 1);
                }
                continue;
            };
            match seen.get(&identity(&state)) {
                Some(Some(below)) => top.below = top.below.max(below + 1),
                Some(None) => {
                    let steps = run.iter().filter_map(|o| o.by).chain([action]);
                    walk.cycle = Some(steps.collect());
                    return walk;
                }
                None => run.push(open(model, &mut walk, &mut seen, Some(action), &state)),
            }
        }
    }
    walk
}

fn open<M: Model<State: Hash>>(
    model: &M,
    walk: &mut Walk<M::Action>,
    seen: &mut HashMap<u64, Option<usize>>,
    by: Option<M::Action>,
    state: &M::State,
) -> Open<M::State, M::Action> {
    let id = identity(state);
    seen.insert(id, None);
    let next = model.next_steps(state);
    walk.states += 1;
    walk.steps += next.len();
    Open { id, by, next, below: 0 }
}

fn identity(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
