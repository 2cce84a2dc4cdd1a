//! Text that `--help` prints below the options: examples, and notes on the whole command.
//!
//! Prose has no line breaks, because clap wraps it to the terminal. Examples fit into 80 columns: one that is
//! wrapped cannot be pasted. Commands with many options show this only with `--help`, so that `-h` fits on a
//! screen.

pub(crate) const ALL: &str = "\
Examples:
  mariadb-backup --backup --stream=xbstream | xbcloud-rs put s3://bucket/mon
  xbcloud-rs backup file:///backup/mon -- \\
      mariadb-backup --backup --stream=xbstream
  xbcloud-rs list s3://bucket/shop
  xbcloud-rs verify s3://bucket/shop/mon --level=pages
  xbcloud-rs restore s3://bucket/shop/mon --target-dir=/var/lib/mysql-new
  xbcloud-rs get s3://bucket/shop/mon | mbstream -x -C /restore

Exit status: 0 done and proven, 1 failed, 2 usage, 3 not found, 4 not permitted, 5 store unreachable, 6 input incomplete or producer failed, 7 damaged or not verified, 128+N ended by signal N.

Options are also read from the group [xbcloud] of the usual my.cnf files. Put access keys there, or in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not on the command line.";

pub(crate) const PUT: &str = "\
Examples:
  mariadb-backup --backup --stream=xbstream | xbcloud-rs put s3://bucket/mon
  xtrabackup --backup --stream=xbstream | xbcloud-rs put gs://bucket/shop/mon
  xbcloud-rs put file:///backup/shop/mon < mon.xbstream

In a pipe, a failure of the backup program shows only as an incomplete stream. `backup` also checks its exit status.";

pub(crate) const BACKUP: &str = "\
Examples:
  xbcloud-rs backup s3://bucket/shop/sun -- \\
      mariadb-backup --backup --stream=xbstream
  xbcloud-rs backup s3://bucket/shop/mon --incremental-from=latest -- \\
      mariadb-backup --backup --stream=xbstream
  xbcloud-rs backup s3://bucket/shop/tue --recipient=age1... -- \\
      mariadb-backup --backup --stream=xbstream
  xbcloud-rs backup s3://bucket/shop/wed --from=mysql://backup@db1";

pub(crate) const GET: &str = "\
Examples:
  xbcloud-rs get s3://bucket/shop/mon | mbstream -x -C /restore
  xbcloud-rs get @shop/latest --identity-file=/etc/age.key > mon.xbstream
  xbcloud-rs get @shop/mon --files 'shop/orders.*' | mbstream -x -C /tmp/o
  xbcloud-rs get s3://bucket/shop/mon --as-stored > mon.native";

pub(crate) const RESTORE: &str = "\
Examples:
  xbcloud-rs restore @shop/latest --target-dir=/var/lib/mysql-new --prepare
  xbcloud-rs restore s3://bucket/shop/@2026-11-20 --files 'shop/orders.*' \\
      --export --target-dir=/tmp/orders
  xbcloud-rs restore s3://bucket/shop/node --prepare --galera \\
      --check-donor=db1 --target-dir=/var/lib/mysql
  xbcloud-rs restore s3://b/shop/ --until=before:0-1-26 --target-dir=/data/new

To resume an interrupted restore, run the same command again.";

pub(crate) const REPORT: &str = "\
Examples:
  xbcloud-rs report /var/log/mysql/xbrs-donor.json -o donor.html
  ssh db2 cat /var/log/mysql/xbrs-joiner.json | xbcloud-rs report /dev/stdin";

pub(crate) const RESCUE: &str = "\
Examples:
  xbcloud-rs rescue @shop/latest shop.orders --identity-file=age.key > a.sql
  xbcloud-rs rescue @shop/latest shop.orders --into=localhost --as='{table}'
  xbcloud-rs rescue @shop/@2026-11-20 'shop.ord*' --into=/run/mysqld/mysqld.sock
  xbcloud-rs rescue @shop shop.orders --until=before:0-1-26 > orders.sql
  xbcloud-rs rescue @shop/mon shop.orders --where='id = 7' --into=db1 --as=old.o

A table gets its name once all its rows are written and, with --into, read back and compared. Under a new name, it gets neither its foreign keys nor its triggers. A schema is created only if --as names it.";

pub(crate) const LIST: &str = "\
Examples:
  xbcloud-rs list s3://bucket/shop
  xbcloud-rs list file:///backup/shop --long
  xbcloud-rs list @shop --server=db1 --since=7d
  xbcloud-rs list azure://container/shop --json";

pub(crate) const SHOW: &str = "\
Examples:
  xbcloud-rs show s3://bucket/shop/latest
  xbcloud-rs show s3://bucket/shop/mon --identity-file=/etc/age.key --json";

pub(crate) const VERIFY: &str = "\
Examples:
  xbcloud-rs verify s3://bucket/shop/latest --level=checksum
  xbcloud-rs verify s3://bucket/shop/latest --identity-file=/etc/age.key
  xbcloud-rs verify s3://bucket/shop/latest --level=restore \\
      --check-sql='SELECT COUNT(*) FROM shop.orders'

Levels above `checksum` need the key of a sealed backup. Level `restore` restores and prepares the backup and starts a server on it.";

pub(crate) const EVIDENCE: &str = "\
Exit status: 0 if a given signer has signed it, and the verification succeeded; else 7.

Examples:
  xbcloud-rs evidence shop-20261122T031500Z.json --signer=ed25519:3d40...";

pub(crate) const CONSOLIDATE: &str = "\
Examples:
  xbcloud-rs consolidate @shop --identity-file=/etc/age.key
  xbcloud-rs consolidate @shop/fri --as=week47 --scratch-dir=/data/tmp

The new backup has the data and the age of the last one. No server is read, and no backup is removed: `prune` may remove the chain once a trial restore has proven the new backup.";

pub(crate) const COPY: &str = "\
Examples:
  xbcloud-rs verify s3://staging/shop/mon
  xbcloud-rs copy s3://staging/shop/mon s3://vault/shop/ --retain=35d \\
      --to-aws-profile=vault
  xbcloud-rs copy file:///backup/mon gs://vault/shop/ \\
      --to-google-storage-class=NEARLINE

Store options apply to both source and destination. Prefix one with `to-`, such as --to-s3-endpoint, to set it for the destination only. If you set a key, token or profile of the destination, it inherits none of the source's credentials.";

pub(crate) const PIN: &str = "\
Examples:
  xbcloud-rs pin s3://bucket/shop/mon --reason='before the migration'
  xbcloud-rs pin s3://bucket/shop/mon --retain=8w";

pub(crate) const UNPIN: &str = "\
Example:
  xbcloud-rs unpin s3://bucket/shop/mon";

pub(crate) const ACCEPT: &str = "\
Until then prune and run remove no backup of its server (smaller), or the backup counts for no retention rule and is an error for monitor (without its base).

Examples:
  xbcloud-rs accept s3://bucket/shop/mon --reason='the log tables have moved'
  xbcloud-rs accept s3://bucket/shop/mon --undo
  xbcloud-rs accept @shop --begun-anew";

pub(crate) const PRUNE: &str = "\
Examples:
  xbcloud-rs prune @shop --keep-daily=7 --keep-weekly=5 --keep-monthly=12
  xbcloud-rs prune s3://bucket/shop --keep-last=3 --keep-within=30d --yes

A backup is kept if any rule keeps it. Days, weeks and months are in UTC; those without a backup do not count. Always kept: the newest backup, the newest verified one, the one verified furthest, pinned and damaged ones, runs in progress, and the chains of kept backups. The rules apply to each server separately.";

pub(crate) const DELETE: &str = "\
Examples:
  xbcloud-rs delete s3://bucket/shop/mon --dry-run
  xbcloud-rs delete s3://bucket/shop/mon --yes";

pub(crate) const REWRAP: &str = "\
Examples:
  xbcloud-rs rewrap s3://bucket/shop/mon --identity-file=/etc/age.key \\
      --recipient=age1... --keep
  xbcloud-rs rewrap s3://bucket/shop/mon --identity-file=/etc/age.key --remove=2

Without --keep or --remove, the new key slots replace all old ones.";

pub(crate) const PLAN: &str = "\
Examples:
  xbcloud-rs plan --size=8T --chunk-size=200M
  xbcloud-rs plan --like=s3://bucket/shop/latest --memory=1G
  xbcloud-rs plan --size=8T --prices=gcs --failure-rate=0.001";

pub(crate) const TUNE: &str = "\
Examples:
  xbcloud-rs tune s3://bucket/shop --data-dir=/var/lib/mysql --sealed
  mariadb-backup --backup --stream=xbstream | xbcloud-rs tune @shop --size=2T
  xbcloud-rs tune --sample=mon.xbstream --size=2T --link=100M --prices=aws

The measurement writes its objects below ROOT/.xb-catalog/@tune and removes them at the end, also after a failure or a signal.";

pub(crate) const GC: &str = "\
Examples:
  xbcloud-rs gc s3://bucket/shop
  xbcloud-rs gc gs://bucket/shop --older-than=48 --yes";

pub(crate) const BINLOG_RECEIVE: &str = "\
Examples:
  xbcloud-rs binlog receive @shop --recipient=age1...
  xbcloud-rs binlog receive @shop --source=db1 --login-file=/etc/repl.cnf

A transaction counts as stored when it has been read back from the store. The unit xb-binlog@.service runs this.";

pub(crate) const BINLOG_LIST: &str = "\
Examples:
  xbcloud-rs binlog list @shop
  xbcloud-rs binlog list s3://bucket/shop --server=db1 --json";

pub(crate) const BINLOG_PUSH: &str = "\
The last stored transaction must be in the files, with the same bytes. For a running server, run FLUSH BINARY LOGS, and give copies of its files.

Examples:
  xbcloud-rs binlog push @shop /mnt/dead/mysql/bin.0000{17,18} --server=db1";

pub(crate) const BINLOG_SHOW: &str = "\
Exit status: 7 if a part of the archive could not be searched.

Examples:
  xbcloud-rs binlog show @shop --since=2h --table=shop.orders --ddl
  xbcloud-rs binlog show @shop --match='delete from orders' \\
      --identity-file=/etc/age.key";

pub(crate) const BINLOG_VERIFY: &str = "\
Exit status: 7 if anything is damaged or missing, or the log has a gap.

Examples:
  xbcloud-rs binlog verify @shop --identity-file=/etc/age.key";
