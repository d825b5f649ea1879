//! Databases: each has a check of its own for what it acknowledged.

pub mod leveldb;
pub mod mariadb;
pub mod postgres;
pub mod redis;
pub mod rocksdb;
pub mod sqlite;
pub mod sqlite_tests;
