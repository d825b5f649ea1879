//! What the models of this crate share. Each is explored under a configuration: to its end, where
//! every property holds and certain situations are met; or with a fault planted in the protocol,
//! until a property breaks.

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A configuration, and what a run of it must meet at least once.
pub struct Case<C> {
    /// What is explored.
    pub config: C,
    /// Names of situations.
    pub reaches: &'static [&'static str],
}

/// What a run looks for: one property or all, and situations.
#[derive(Default)]
pub struct Watch {
    only: Option<&'static str>,
    landmarks: &'static [&'static str],
    met: AtomicU32,
}

impl Watch {
    /// Notes what a state is for the first time: the checker's `sometimes` would keep the path to
    /// every such state.
    pub(crate) fn look(&self, is_at: impl Fn(&str) -> bool) {
        let met = self.met.load(Ordering::Relaxed);
        let left = self.landmarks.iter().enumerate().filter(|(bit, _)| met & 1 << bit == 0);
        let new = left.filter(|(_, name)| is_at(name)).fold(0, |bits, (bit, _)| bits | 1 << bit);
        if new != 0 {
            self.met.fetch_or(new, Ordering::Relaxed);
        }
    }

    /// Those of a model's properties that are looked at.
    pub(crate) fn wanted<M: Model>(&self, mut all: Vec<Property<M>>) -> Vec<Property<M>> {
        all.retain(|property| self.only.is_none_or(|only| only == property.name));
        all
    }

    /// The situations that no explored state was.
    fn never_met(&self) -> Vec<&'static str> {
        let met = self.met.load(Ordering::Relaxed);
        let all = self.landmarks.iter().enumerate();
        all.filter(|(bit, _)| met & 1 << bit == 0).map(|(_, name)| *name).collect()
    }
}

/// A model under a configuration.
pub trait Explored:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Copy + Debug + PartialEq>
    + Send
    + Sync
    + 'static
{
    /// What is explored.
    type Config: Clone;
    /// A fault of the protocol itself.
    type Mutation: Copy + Debug;

    /// The model.
    ///
    /// # Panics
    /// If it does not hold such a configuration.
    fn of(config: Self::Config, watch: Watch) -> Self;
    /// What is looked for.
    fn watch(&self) -> &Watch;
    /// The configuration's name in reports.
    fn name(config: &Self::Config) -> &'static str;
    /// The configuration with a fault planted.
    fn mutated(config: Self::Config, mutation: Self::Mutation) -> Self::Config;
}

/// Explores one configuration to its end, and prints how many states it has.
///
/// # Panics
/// If a property does not hold, with the steps to that, or a situation is not met.
pub fn explore<M: Explored>(case: Case<M::Config>) {
    let (name, start) = (M::name(&case.config), Instant::now());
    let watch = Watch { landmarks: case.reaches, ..Watch::default() };
    let checker = M::of(case.config, watch).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let states = checker.unique_state_count();
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let steps: Vec<_> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
        panic!("{name}: does not hold: {property}\n{}", steps.join("\n"));
    }
    assert!(checker.is_done(), "{name}: explored to the end");
    let never = checker.model().watch().never_met();
    assert_eq!(never, [""; 0], "{name}: situations that it must get into");
    println!("{name}: {states} states, {:.1} s", start.elapsed().as_secs_f64());
}

/// The shortest run to a state that breaks `property`, of at most `steps` steps.
pub fn shortest<M: Explored>(
    config: M::Config,
    property: &'static str,
    steps: Option<usize>,
) -> Option<Vec<M::Action>> {
    let mut checker = M::of(config, Watch { only: Some(property), ..Watch::default() }).checker();
    if let Some(steps) = steps {
        checker = checker.target_max_depth(steps + 2);
    }
    let found = checker.spawn_bfs().join().discovery(property);
    found.map(|path| path.into_actions())
}

/// A planted fault breaks a property, and in as few steps nothing else does. Prints how many, and
/// with `SIFTFS_TRACE=1` the run.
///
/// # Panics
/// If that is not so.
pub fn bites<M: Explored>(mutation: M::Mutation, property: &'static str, config: M::Config) {
    let run = shortest::<M>(M::mutated(config.clone(), mutation), property, None);
    let run = run.unwrap_or_else(|| panic!("{mutation:?} does not break: {property}"));
    println!("{mutation:?} | {property} | {} steps", run.len());
    if std::env::var_os("SIFTFS_TRACE").is_some() {
        run.iter().for_each(|action| println!("    {action:?}"));
    }
    let without = shortest::<M>(config, property, Some(run.len()));
    assert_eq!(without, None, "broken without {mutation:?} too: {property}");
}

/// Makes a type with the fields `config` and `watch` such a model, by what its module has:
/// `Config`, which checks itself and plants faults, and `Mutation`.
macro_rules! explored_by_config {
    ($model:ident) => {
        impl $crate::explored::Explored for $model {
            type Config = Config;
            type Mutation = Mutation;

            fn of(config: Config, watch: $crate::explored::Watch) -> Self {
                config.validate();
                Self { config, watch }
            }

            fn watch(&self) -> &$crate::explored::Watch {
                &self.watch
            }

            fn name(config: &Config) -> &'static str {
                config.name
            }

            fn mutated(config: Config, mutation: Mutation) -> Config {
                config.mutated(mutation)
            }
        }
    };
}
pub(crate) use explored_by_config;

/// A test for each of these functions of the module `cases`, which explores what it makes.
#[macro_export]
macro_rules! explored {
    ($model:ty: $($name:ident),*) => {$(
        #[test]
        fn $name() {
            $crate::explored::explore::<$model>(cases::$name());
        }
    )*};
}

/// A test for each of these planted faults, which breaks that property in that configuration; and
/// one that the module `judge` has no property that none of them breaks.
#[macro_export]
macro_rules! planted {
    ($model:ty: $($name:ident: $mutation:ident breaks $property:ident in $config:expr;)*) => {
        $(#[test]
        fn $name() {
            $crate::explored::bites::<$model>($mutation, $property, $config);
        })*

        #[test]
        fn every_property_can_be_broken() {
            let broken = [$($property),*];
            for property in judge::properties() {
                assert!(broken.contains(&property.name), "nothing breaks: {}", property.name);
            }
        }
    };
}
