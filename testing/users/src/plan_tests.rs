use super::*;
use std::collections::BTreeSet;

#[test]
fn every_scene_is_drawn_under_every_mount() {
    let mut seen = BTreeSet::new();
    for round in 0..400 {
        let plan = Plan::new(7, round, &[]);
        assert_eq!(plan, Plan::new(7, round, &[]), "a plan depends on its seed alone");
        let mut names: Vec<_> = plan.scenes.iter().map(|s| s.name()).collect();
        names.dedup();
        assert_eq!(names.len(), plan.scenes.len(), "{plan}");
        seen.extend(names.into_iter().map(|name| (name, plan.options())));
    }
    assert_eq!(seen.len(), Scene::ALL.len() * 4);
}

#[test]
fn nothing_else_than_what_is_asked_for() {
    for round in 0..50 {
        assert_eq!(Plan::new(1, round, &[Scene::Thieves]).scenes, [Scene::Thieves]);
    }
}
