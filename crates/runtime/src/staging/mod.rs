//! One fsync: what it owes becomes a record, is written and is durable.

pub mod capture;
pub mod closure;
pub mod dispatch;
pub mod encode;
pub mod fsync;
pub mod not_staged;
pub mod pause;
pub mod proof;
pub mod records;
pub mod sequencer;
pub mod stage;
pub mod tracker;
pub mod unwritten;
pub mod ways;
