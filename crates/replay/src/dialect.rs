//! Names of the parts of a replica in the two forks.

use xb_binlog::GtidState;

/// Statements about a replica, and the columns of its status.
#[derive(Debug)]
pub(crate) struct Dialect {
    pub(crate) status: &'static str,
    /// Relay log and offset, source's log and offset, whether the applier runs, its error by number and text.
    pub(crate) columns: [&'static str; 7],
    pub(crate) source: &'static str,
    pub(crate) start: &'static str,
    pub(crate) stop: &'static str,
    pub(crate) reset: &'static str,
    /// Applies one transaction after the other.
    pub(crate) serially: &'static str,
    /// Notes in the session how many workers the server has, and gives it as many again; `None` if nothing asks for that.
    pub(crate) workers: Option<(&'static str, &'static str)>,
    /// The transactions that the data has.
    pub(crate) gtids: &'static str,
    /// The errors of workers, behind that of the applier.
    pub(crate) worker_error: Option<&'static str>,
    /// Events that are disabled as those of a replica.
    pub(crate) disabled_events: &'static str,
    /// Enabled events that run once, of `mysql.event` or `information_schema.events`; their latest time in UTC follows.
    pub(crate) once: &'static str,
    /// What a replay does to versioned tables; not of MySQL.
    pub(crate) unlogged: Option<&'static Unlogged>,
    pub(crate) prepared: &'static str,
    /// Names and values of what lets the applier leave out a part of the logs.
    pub(crate) filters: &'static str,
    /// Names and values of what lets it pass over errors, or do more than the logs say.
    pub(crate) lenient: &'static str,
    /// Counters that move while a server works, and not because of our queries.
    pub(crate) activity: &'static [&'static str],
    /// Workers that wait for a lock which a later transaction may hold.
    pub(crate) deadlocked: Option<&'static str>,
    pub(crate) dirty: &'static str,
}

/// Statements about what MariaDB changes without a word in its log.
#[derive(Debug)]
pub(crate) struct Unlogged {
    /// Number of foreign keys that change rows.
    pub(crate) cascades: &'static str,
    /// Versioned tables whose rows one of them may have changed since the server started, and those made since.
    pub(crate) cascaded: &'static str,
    /// The last transaction of which versioned tables have the number.
    pub(crate) last_number: &'static str,
    /// Versioned tables with numbers of transactions.
    pub(crate) numbered: &'static str,
}

/// A foreign key is changed by InnoDB, and rows have whole seconds in the log. A table with one is never evicted, so that the server
/// knows when it was changed.
const UNLOGGED: Unlogged = Unlogged {
    cascades: "SELECT COUNT(*) FROM information_schema.innodb_sys_foreign WHERE type & 15 <> 0",
    cascaded: "SELECT DISTINCT CONCAT(c.constraint_schema, '.', c.table_name) FROM information_schema.referential_constraints c \
               JOIN information_schema.tables t ON t.table_schema = c.constraint_schema AND t.table_name = c.table_name \
               WHERE t.table_type = 'SYSTEM VERSIONED' \
               AND (c.delete_rule IN ('CASCADE', 'SET NULL') OR c.update_rule IN ('CASCADE', 'SET NULL')) \
               AND (t.update_time IS NOT NULL OR t.create_time > NOW() - INTERVAL (SELECT variable_value \
               FROM information_schema.global_status WHERE variable_name = 'Uptime') SECOND) ORDER BY 1",
    last_number: "SELECT COALESCE(MAX(transaction_id), 0) FROM mysql.transaction_registry",
    numbered: "SELECT DISTINCT CONCAT(table_schema, '.', table_name) FROM information_schema.columns \
               WHERE generation_expression = 'ROW START' AND data_type = 'bigint' ORDER BY 1",
};

/// MariaDB.
pub(crate) const MARIADB: Dialect = Dialect {
    status: "SHOW SLAVE STATUS",
    columns: [
        "Relay_Log_File",
        "Relay_Log_Pos",
        "Relay_Master_Log_File",
        "Exec_Master_Log_Pos",
        "Slave_SQL_Running",
        "Last_SQL_Errno",
        "Last_SQL_Error",
    ],
    source: "CHANGE MASTER TO MASTER_HOST='none', MASTER_USER='none', MASTER_USE_GTID=no",
    start: "START SLAVE SQL_THREAD",
    stop: "STOP SLAVE",
    reset: "RESET SLAVE ALL",
    serially: "SET GLOBAL slave_parallel_threads = 0",
    workers: Some((
        "SET @workers = @@GLOBAL.slave_parallel_threads",
        "SET GLOBAL slave_parallel_threads = @workers",
    )),
    gtids: "SELECT @@GLOBAL.gtid_slave_pos",
    worker_error: None,
    disabled_events: "SELECT CONCAT(db, '.', name) FROM mysql.event WHERE status = 'SLAVESIDE_DISABLED'",
    once: "status = 'ENABLED' AND execute_at <= '1970-01-01' + INTERVAL",
    unlogged: Some(&UNLOGGED),
    prepared: "XA RECOVER FORMAT='SQL'",
    filters: "SELECT LOWER(variable_name), variable_value FROM information_schema.global_variables \
              WHERE variable_name IN ('replicate_do_db', 'replicate_do_table', 'replicate_ignore_db', \
              'replicate_ignore_table', 'replicate_rewrite_db', 'replicate_wild_do_table', \
              'replicate_wild_ignore_table') AND variable_value != '' \
              OR variable_name = 'replicate_events_marked_for_skip' AND variable_value != 'REPLICATE' ORDER BY 1",
    lenient: "SELECT LOWER(variable_name), LEFT(variable_value, 40) FROM information_schema.global_variables \
              WHERE variable_name = 'slave_skip_errors' AND variable_value NOT IN ('', 'OFF') \
              OR variable_name IN ('slave_exec_mode', 'slave_ddl_exec_mode') AND variable_value != 'STRICT' \
              OR variable_name = 'sql_slave_skip_counter' AND variable_value != '0' \
              OR variable_name = 'slave_run_triggers_for_rbr' AND variable_value != 'NO' \
              OR variable_name IN ('slave_type_conversions', 'init_slave') AND variable_value != '' ORDER BY 1",
    activity: &[
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete', \
         'Innodb_data_read', 'Innodb_data_written')",
        "SELECT id, state, stage, progress, examined_rows FROM information_schema.processlist \
         WHERE user = 'system user' ORDER BY id",
    ],
    deadlocked: Some(
        "SELECT id FROM information_schema.processlist WHERE command = 'Slave_worker' \
         AND state = 'Waiting for table metadata lock' \
         AND EXISTS (SELECT 1 FROM information_schema.processlist later WHERE later.command = 'Slave_worker' \
         AND later.state = 'Waiting for prior transaction to commit')",
    ),
    dirty: "SELECT variable_value FROM information_schema.global_status WHERE variable_name = \
            'Innodb_buffer_pool_pages_dirty'",
};

/// MySQL 8.0.26 and later.
pub(crate) const MYSQL: Dialect = Dialect {
    status: "SHOW REPLICA STATUS",
    columns: [
        "Relay_Log_File",
        "Relay_Log_Pos",
        "Relay_Source_Log_File",
        "Exec_Source_Log_Pos",
        "Replica_SQL_Running",
        "Last_SQL_Errno",
        "Last_SQL_Error",
    ],
    source: "CHANGE REPLICATION SOURCE TO SOURCE_HOST='none', SOURCE_USER='none', SOURCE_AUTO_POSITION=0",
    start: "START REPLICA SQL_THREAD",
    stop: "STOP REPLICA",
    reset: "RESET REPLICA ALL",
    serially: "SET GLOBAL replica_parallel_workers = 1",
    workers: None,
    gtids: "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
    worker_error: Some(
        "SELECT last_error_message FROM performance_schema.replication_applier_status_by_worker \
         WHERE last_error_number != 0 LIMIT 1",
    ),
    disabled_events: "SELECT CONCAT(event_schema, '.', event_name) FROM information_schema.events \
                      WHERE status NOT IN ('ENABLED', 'DISABLED')",
    // The time of a zone that the server does not know counts as past.
    once: "status = 'ENABLED' AND execute_at IS NOT NULL \
           AND COALESCE(CONVERT_TZ(execute_at, time_zone, '+00:00'), '1970-01-01') <= '1970-01-01' + INTERVAL",
    unlogged: None,
    prepared: "XA RECOVER CONVERT XID",
    filters: "SELECT DISTINCT LOWER(filter_name), filter_rule FROM \
              (SELECT filter_name, filter_rule FROM performance_schema.replication_applier_global_filters UNION ALL \
              SELECT filter_name, filter_rule FROM performance_schema.replication_applier_filters) filters ORDER BY 1",
    lenient: "SELECT LOWER(variable_name), LEFT(variable_value, 40) FROM performance_schema.global_variables \
              WHERE variable_name = 'replica_skip_errors' AND variable_value NOT IN ('', 'OFF') \
              OR variable_name = 'replica_exec_mode' AND variable_value != 'STRICT' \
              OR variable_name = 'sql_replica_skip_counter' AND variable_value != '0' \
              OR variable_name IN ('replica_type_conversions', 'init_replica') AND variable_value != '' ORDER BY 1",
    activity: &[
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_rows_inserted', 'Innodb_rows_updated', \
         'Innodb_rows_deleted', 'Innodb_rows_read', 'Innodb_data_read', 'Innodb_data_written', 'Innodb_pages_created')",
    ],
    deadlocked: None,
    dirty: "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = \
            'Innodb_buffer_pool_pages_dirty'",
};

impl Dialect {
    /// Returns the dialect of the fork that wrote these transactions.
    pub(crate) fn of(gtids: &GtidState) -> &'static Self {
        match gtids {
            GtidState::MariaDb(_) => &MARIADB,
            GtidState::MySql(_) => &MYSQL,
        }
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.worker_error.is_some()
    }
}
