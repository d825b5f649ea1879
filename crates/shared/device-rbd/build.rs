//! Has the C compiler compare the functions that this crate declares with librbd's own headers.

fn main() {
    println!("cargo::rerun-if-changed=src/declared.c");
    println!("cargo::rerun-if-env-changed=CARGO_FEATURE_LIBRBD");
    if std::env::var_os("CARGO_FEATURE_LIBRBD").is_some() {
        cc::Build::new()
            .file("src/declared.c")
            .flag("-std=gnu11")
            .warnings(true)
            .compile("siftfs_rbd_declared");
    }
}
