use super::*;
use crate::options::mount::parse;

fn named(text: &str) -> Result<Option<Served>, String> {
    served(Path::new(text), &ServedOptions::default())
}

#[test]
fn addresses_and_paths_are_told_apart() {
    let unix = named("unix:/run/v.sock").unwrap().unwrap();
    assert_eq!(unix.addresses.all(), [Address::Unix("/run/v.sock".into())]);
    assert_eq!(unix.volume, "");
    let tcp = named("tcp:[::1]:7401").unwrap().unwrap();
    assert_eq!(tcp.addresses.to_string(), "tcp:[::1]:7401");
    let nfs = named("store.example:/volume").unwrap().unwrap();
    assert_eq!(nfs.addresses.to_string(), format!("tcp:store.example:{PORT}"));
    assert_eq!(nfs.volume, "volume");
    for path in ["/dev/sdb", "volume", "./unix:x", "dir/host:/volume", "./host:/volume", ":/x"] {
        assert_eq!(named(path), Ok(None), "{path}");
    }
}

#[test]
fn several_servers_are_named_in_the_forms_of_one() {
    for (text, addresses, volume) in [
        ("a,b:/v", "tcp:a:7400,tcp:b:7400", "v"),
        ("a:7401,[::1]:7402,[::2]:/v", "tcp:a:7401,tcp:[::1]:7402,tcp:[::2]:7400", "v"),
        ("tcp:a:7401,tcp:b:7402", "tcp:a:7401,tcp:b:7402", ""),
        ("unix:/run/a,unix:/run/b,c", "unix:/run/a,unix:/run/b,c", ""),
    ] {
        let served = named(text).unwrap().unwrap();
        assert_eq!((&*served.addresses.to_string(), &*served.volume), (addresses, volume));
    }
    // The port is that of each host which has none of its own.
    let options = ServedOptions { port: Some(9), ..Default::default() };
    let served = served(Path::new("a,b:7401:/v"), &options).unwrap().unwrap();
    assert_eq!(served.addresses.to_string(), "tcp:a:9,tcp:b:7401");
    let relative = named("unix:a,unix:b").unwrap().unwrap();
    let here = std::env::current_dir().unwrap().display().to_string();
    let whole = absolute(Path::new("unix:a,unix:b"), &relative).unwrap();
    assert_eq!(whole, PathBuf::from(format!("unix:{here}/a,unix:{here}/b")));
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    for (text, why) in [
        ("unix:", "the path is missing"),
        ("tcp:host", "the port is missing"),
        ("host:/", "HOST:/VOLUME"),
        ("host:/volume/dir", "subdir="),
        ("ho st:/volume", "the host is missing"),
        ("a,:/volume", "one of them is empty"),
        ("a,a:7400:/volume", "named twice"),
        ("tcp:a:1,tcp:a:1", "named twice"),
        ("unix:/a,tcp:b:1", "by the way that it comes"),
        ("a,b,c,d,e,f,g,h,i:/volume", "more than 8"),
    ] {
        let said = named(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
    let options =
        ServedOptions { volume: Some("other".into()), port: Some(1), ..Default::default() };
    assert!(served(Path::new("host:/v"), &options).unwrap_err().contains("names another one"));
    assert!(served(Path::new("unix:/x"), &options).unwrap_err().contains("port"));
    assert!(
        served(Path::new("/dev/sdb"), &options).unwrap_err().contains("another process serves")
    );
}

#[test]
fn options_of_the_volume_are_refused_by_name() {
    for (list, why) in [
        ("cache=64M", "cache"),
        ("ro,commit=1", "commit"),
        ("nodiscard", "nodiscard"),
        ("log=/x", "log"),
        ("private_logs=on", "private_logs"),
        ("log_may_die", "log_may_die"),
        ("write_cache=writeback", "writeback"),
        ("noatime", "noatime"),
        ("service=unix:/x", "service"),
    ] {
        let lists = [list.to_string()];
        let options = parse(&lists, false).unwrap();
        let said = refuse(&lists, &options).unwrap_err();
        assert!(said.starts_with(why) || said.contains(why), "{list}: {said}");
    }
    let daemon = ["private_logs=daemon".to_string()];
    let options = parse(&daemon, false).unwrap();
    assert_eq!(refuse(&daemon, &options), Ok(()));
    assert_eq!(refuse_logs(&named("unix:/run/v.sock").unwrap().unwrap(), &options), Ok(()));
    for address in ["tcp:host:1", "host:/volume"] {
        let said = refuse_logs(&named(address).unwrap().unwrap(), &options).unwrap_err();
        assert!(said.contains("would get every byte"), "{said}");
    }
    let usual = ["ro,sync,subdir=a,shared,_netdev,x-a=b,allow_other,requests=device".to_string()];
    assert_eq!(refuse(&usual, &parse(&usual, false).unwrap()), Ok(()));
}
