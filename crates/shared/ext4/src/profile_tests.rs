use super::*;
use crate::format::*;
use crate::test_image::Image;
use zerocopy::FromBytes;

const DOCUMENT: &str = include_str!("../../../../docs/spec/ext4-profile.md");

/// The document's table, row by row, is the code's.
#[test]
fn document_and_table_agree() {
    let rows: Vec<Vec<&str>> = DOCUMENT
        .lines()
        .filter(|l| {
            l.starts_with("| compat") || l.starts_with("| incompat") || l.starts_with("| ro_compat")
        })
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let code: Vec<Vec<String>> = FEATURES
        .iter()
        .map(|f| {
            let bit = format!("`{:#x}`", f.bit);
            vec![f.word.name().into(), bit, f.name.into(), f.support.name().into()]
        })
        .collect();
    let doc: Vec<Vec<&str>> = rows.iter().map(|r| r[..4].to_vec()).collect();
    assert_eq!(doc, code);
    for (row, f) in rows.iter().zip(FEATURES).filter(|(_, f)| f.support == Support::Refused) {
        assert!(row[4] == f.why && !f.why.is_empty(), "{}: {}", f.name, row[4]);
    }
    for arg in MKE2FS_ARGS.iter().filter(|a| a.contains(',')) {
        assert!(DOCUMENT.contains(&arg.replace(' ', "")), "the document names {arg}");
    }
}

#[test]
fn bits_are_single_and_named_once() {
    for (i, f) in FEATURES.iter().enumerate() {
        assert_eq!(f.bit.count_ones(), 1, "{}", f.name);
        assert!(!FEATURES[..i].iter().any(|g| g.word == f.word && g.bit == f.bit), "{}", f.name);
    }
}

fn super_with(compat: u32, incompat: u32, ro_compat: u32) -> Superblock {
    let mut sb = Superblock::read_from_bytes(&[0; SUPER_SIZE]).unwrap();
    sb.s_feature_compat = compat.into();
    sb.s_feature_incompat = incompat.into();
    sb.s_feature_ro_compat = ro_compat.into();
    sb
}

#[test]
fn errors_name_the_features() {
    let says = |c, i, r| check_features(&super_with(c, i, r)).unwrap_err().to_string();
    assert!(says(0, 0x42 | 0x8000, 0x46B).contains("inline_data"));
    assert!(says(0, 0x42 | 0x4, 0x46B).contains("needs_recovery"));
    assert!(says(0, 0x42 | 0x4000_0000, 0x46B).contains("unknown incompat bits 0x40000000"));
    assert!(says(0, 0x2, 0x46B).contains("missing: extent"));
    check_features(&super_with(0x38, 0x2C2 | INCOMPAT_SIFTFS, 0x46B)).unwrap();
}

/// Under our configuration mke2fs makes exactly the features asked for.
#[test]
fn mke2fs_makes_the_profile() {
    let image = Image::make(64);
    let bytes = std::fs::read(&image.file).unwrap();
    let sb = Superblock::ref_from_bytes(&bytes[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE]).unwrap();
    check_features(sb).unwrap();
    let words =
        (sb.s_feature_compat.get(), sb.s_feature_incompat.get(), sb.s_feature_ro_compat.get());
    assert_eq!(words, (0x28, 0x2C2, 0x46B));
    image.check();
}
