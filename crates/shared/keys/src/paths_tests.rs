use super::*;

#[test]
fn places() {
    let path = |text: &str| Some(OsString::from(text));
    let place = |root, config, home| folder(root, config, home);
    assert_eq!(place(true, path("/c"), path("/h")), Some("/etc/siftfs".into()));
    assert_eq!(place(false, path("/c"), path("/h")), Some("/c/siftfs".into()));
    assert_eq!(place(false, None, path("/h")), Some("/h/.config/siftfs".into()));
    // As the specification of these variables has it, what is relative does not count.
    assert_eq!(place(false, path("c"), path("/h")), Some("/h/.config/siftfs".into()));
    assert_eq!(place(false, None, path("h")), None);
    assert_eq!(place(false, None, None), None);
    assert_eq!(authorized(), Path::new("/etc/siftfs/authorized"));
}
