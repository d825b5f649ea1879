//! What there is to see without a device; `testing/guest/rdma.sh` has one.

use super::*;

/// The shim asserts the same of its own.
#[test]
fn structures_are_those_of_the_shim() {
    assert_eq!((size_of::<Shape>(), size_of::<End>(), size_of::<Completion>()), (32, 28, 24));
}

/// No device has an address of the documentation's network.
#[test]
fn an_address_that_no_device_has_is_refused() {
    for local in ["203.0.113.7", "2001:db8::7"] {
        let error = open(local.parse().unwrap()).err().expect("no such device").to_string();
        assert!(error.contains(local) || error.contains("libibverbs1"), "{error}");
    }
}
