//! Compiles the functions around libibverbs, whose interface is for the most part a C header.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-env-changed=CARGO_FEATURE_VERBS");
    if std::env::var_os("CARGO_FEATURE_VERBS").is_some() {
        cc::Build::new()
            .file("src/shim.c")
            .flag("-std=gnu11")
            .warnings(true)
            .compile("siftfs_rdma_shim");
    }
}
