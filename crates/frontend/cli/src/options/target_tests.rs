use super::*;

fn named_as(text: &str) -> Result<Option<String>, String> {
    let named = named(Path::new(text)).map_err(|f| f.message)?;
    Ok(named.map(|path| path.display().to_string()))
}

#[test]
fn an_address_and_a_volume() {
    for (text, wanted) in [
        ("target:unix:/run/t.sock/mail.img", "target:unix:/run/t.sock/mail.img"),
        ("target:tcp:storage:7400/mail.img", "target:tcp:storage:7400/mail.img"),
        ("target:tcp:[::1]:7400/mail.img", "target:tcp:[::1]:7400/mail.img"),
    ] {
        assert_eq!(named_as(text), Ok(Some(wanted.into())));
    }
    let here = std::env::current_dir().unwrap();
    let wanted = format!("target:unix:{}/t.sock/v", here.display());
    assert_eq!(named_as("target:unix:t.sock/v"), Ok(Some(wanted)));
    for path in ["/srv/v", "./target:v", "target", "host:/v", "unix:/run/s"] {
        assert_eq!(named_as(path), Ok(None));
    }
}

#[test]
fn what_names_no_address_or_no_volume_is_refused() {
    for (text, why) in [
        ("target:", "say which volume"),
        ("target:tcp:host:7400", "say which volume"),
        ("target:tcp:host:7400/", "say which volume"),
        ("target:host/v", "neither a unix socket nor a TCP address"),
        ("target:tcp:host/v", "the port is missing"),
    ] {
        let said = named_as(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
}

/// Members at targets are reached by addresses that hold everywhere; others are paths.
#[test]
fn members_of_stripes() {
    let named = Path::new("stripe:target:unix:/s/a.sock/m0,/dev/x,target:tcp:host:7400/m1");
    let trust = Trust { insecure: true, ..Trust::default() };
    let found = members(named, &trust).map_err(|f| f.message).unwrap();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["target:unix:/s/a.sock/m0", "target:tcp:host:7400/m1"]);
    assert!(members(Path::new("/dev/x"), &trust).map_err(|f| f.message).unwrap().is_empty());
    let said = members(Path::new("stripe:target:host/v,b"), &trust).unwrap_err().message;
    assert!(said.contains("neither a unix socket"), "{said}");
}
