use super::*;

#[test]
fn the_environment_says_which_client_it_is() {
    let said = |arguments| String::from_utf8(user(arguments)).unwrap();
    assert_eq!(said(None), "client.admin");
    assert_eq!(said(Some("--keyring /k")), "client.admin");
    for arguments in ["--id sift", "--id=sift", "--user sift", "-i sift", "-m h --name client.sift"]
    {
        assert_eq!(said(Some(arguments)), "client.sift", "{arguments}");
    }
    assert_eq!(said(Some("--id")), "client.admin");
}

#[test]
fn a_remark_behind_an_answer_is_left_alone() {
    let list = first_value(b"[{\"addr\":\"10.0.0.1:0/5\"}]listed 1 entries").unwrap();
    assert_eq!(list[0]["addr"], "10.0.0.1:0/5");
    assert_eq!(first_value(b"\n[]\n").unwrap(), serde_json::json!([]));
    assert_eq!(first_value(b"[{"), None);
    assert_eq!(first_value(b""), None);
}

#[test]
fn an_entry_of_an_hour_is_not_long() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let year = 1970 + now.as_secs() / YEAR;
    assert!(is_long(&format!("{}-11-26T00:58:52.880387+0000", year + 10)));
    assert!(is_long(&format!("{}-01-01T00:00:00.000000+0000", year + 5)));
    assert!(!is_long(&format!("{}-01-01T00:00:00.000000+0000", year + 1)));
    for until in ["", "x", "20é6-01-01"] {
        assert!(!is_long(until), "{until}");
    }
}
