use super::*;

fn document() -> Value {
    let mut status = Status { pid: 7, ..Status::default() };
    status.runtime.log.lanes = vec![siftfs_status::Lane::default(); 2];
    serde_json::to_value(status).expect("a document")
}

#[test]
fn a_missing_counter_is_named() {
    assert_eq!(read(&document().to_string()).expect("complete").pid, 7);
    let mut status = document();
    status["runtime"]["storage"]["journal"]["background"] = serde_json::json!({});
    let Failed(message) = read(&status.to_string()).expect_err("counters are missing");
    assert!(message.contains("/storage/journal/background/"), "{message}");
    let mut status = document();
    let background = status["runtime"]["storage"]["journal"]["background"].as_object_mut();
    background.expect("counters").remove("writes");
    let Failed(message) = read(&status.to_string()).expect_err("a counter is missing");
    assert!(message.contains("/storage/journal/background/writes"), "{message}");
}

#[test]
fn a_missing_counter_in_a_list_is_named() {
    let mut status = document();
    let lane = status["runtime"]["log"]["lanes"][1].as_object_mut();
    lane.expect("a lane").remove("head");
    let Failed(message) = read(&status.to_string()).expect_err("a counter is missing");
    assert!(message.contains("/runtime/log/lanes/1/head"), "{message}");
}
