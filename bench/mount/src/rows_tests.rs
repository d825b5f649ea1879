use super::*;
use crate::library::jobs::JOBS as library;

#[test]
fn names_are_unique_and_each_row_of_a_table_fits() {
    let rows: Vec<&Row> = JOBS.iter().chain(library).flat_map(|j| j.rows).collect();
    for (i, row) in rows.iter().enumerate() {
        assert!(row.what.len() <= 42, "{}", row.what);
        assert!(rows[..i].iter().all(|r| r.name != row.name), "{}", row.name);
        assert!(rows[..i].iter().all(|r| r.what != row.what), "{}", row.what);
    }
}

#[test]
fn every_job_has_rows_and_a_floor_only_where_latencies_are_measured() {
    for job in JOBS {
        assert!(!job.rows.is_empty());
        let latency = job.rows[0].metric == Metric::Latency;
        assert!(!job.kind.has_floor() || (latency && job.kind.works_embedded()), "{}", job.name());
    }
}

#[test]
fn each_program_is_measured_quiet_and_beside_busy_loops() {
    let programs = |wanted: bool| {
        JOBS.iter().filter(move |j| matches!(j.kind, Kind::Program { busy, .. } if busy == wanted))
    };
    let by_sections = |j: &&Job| j.name().starts_with("sqlite-sections");
    assert_eq!(programs(false).filter(by_sections).count(), 2, "with and without, and never busy");
    let usual = || programs(false).filter(|j| !by_sections(j));
    assert_eq!((usual().count(), programs(true).count()), (7, 7));
    assert!(usual().all(|j| j.rows[0].target == Some(1.0)));
    assert!(programs(true).all(|j| j.rows[0].target == Some(0.9)));
}
