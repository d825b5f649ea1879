use super::*;
use crate::{ClusterInfo, DeviceInfo, Server};

fn serving() -> Status {
    Status { state: Some(State::Serving), ..Status::default() }
}

#[test]
fn states_have_names_that_are_read_again() {
    for state in State::ALL {
        assert_eq!(State::named(state.name()), Some(state));
        let text = serde_json::to_string(&Status { state: Some(state), ..Status::default() });
        let read: Status = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(read.state, Some(state));
    }
    let newer: Status = serde_json::from_str(r#"{"state":"dreaming"}"#).unwrap();
    assert_eq!(newer.state, None);
}

#[test]
fn a_process_begins_as_one_that_recovers_and_its_volume_speaks_once_it_serves() {
    let cell = StateCell::default();
    let fenced = Some("it has latched: fenced: another process has taken it over".into());
    let fenced = RuntimeStatus { failed: fenced, ..RuntimeStatus::default() };
    let latched = RuntimeStatus { failed: Some("flush: EIO".into()), ..RuntimeStatus::default() };
    assert_eq!(cell.get(), State::Recovering);
    for state in State::ALL {
        cell.set(state);
        assert_eq!(cell.get(), state);
        let said = cell.beside(&fenced);
        assert_eq!(said, if state == State::Serving { State::Fenced } else { state });
    }
    cell.set(State::Serving);
    assert_eq!(cell.beside(&latched), State::Latched);
    assert_eq!(cell.beside(&RuntimeStatus::default()), State::Serving);
}

#[test]
fn each_reason_not_to_be_healthy_is_one_line() {
    assert_eq!(serving().unhealthy(), None);
    // A daemon of an earlier version says no state.
    assert_eq!(Status::default().unhealthy(), None);
    for state in State::ALL.into_iter().skip(1) {
        let said = Status { state: Some(state), ..Status::default() }.unhealthy().unwrap();
        assert!(said.starts_with(state.name()), "{said}");
    }
    let mut latched = serving();
    latched.runtime.failed = Some("flush:\nEIO".into());
    assert_eq!(latched.unhealthy().unwrap(), "latched: flush: EIO");
    latched.state = Some(State::Latched);
    assert_eq!(latched.unhealthy().unwrap(), "latched: flush: EIO");
    let lost = Server { lost: Some("it is gone".into()), ..Server::default() };
    let lost = Status { server: Some(lost), ..serving() };
    assert_eq!(lost.unhealthy().unwrap(), "the server is lost: it is gone");
}

#[test]
fn a_call_of_the_storage_may_wait_for_a_while_and_no_longer() {
    let mut own = serving();
    own.runtime.queues.oldest_call_ms = STUCK_MS - 1;
    assert_eq!(own.unhealthy(), None);
    own.runtime.queues.oldest_call_ms = STUCK_MS;
    assert!(own.unhealthy().unwrap().contains("60 s"), "{:?}", own.unhealthy());
    let cluster = ClusterInfo { longest_ms: 2 * STUCK_MS, ..ClusterInfo::default() };
    let device = DeviceInfo { cluster: Some(Box::new(cluster)), ..DeviceInfo::default() };
    let mut clusters = serving();
    clusters.runtime.devices = vec![DeviceInfo::default(), device];
    assert_eq!(clusters.oldest_call_ms(), 2 * STUCK_MS);
    assert!(clusters.unhealthy().unwrap().contains("120 s"), "{:?}", clusters.unhealthy());
}
