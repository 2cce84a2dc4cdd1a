-- A small but realistic data set with every engine and row format that a backup treats
-- differently. Two variables, set before this file is read, determine the sizes:
--   @big_rows      rows of the large table, about 1.6 KiB each in its file
--   @small_tables  small tables, spread over InnoDB, Aria and MyISAM

CREATE DATABASE shop;
USE shop;

-- Spans several chunks and objects; half of it does not compress.
CREATE TABLE big (
  id INT PRIMARY KEY, name VARCHAR(40), noise VARBINARY(800), note VARCHAR(800)
) ENGINE=InnoDB;
INSERT INTO big
  SELECT seq, CONCAT('customer ', seq), RANDOM_BYTES(700), REPEAT(CONCAT('invoice ', seq, ' paid; '), 30)
  FROM seq_1_to_1000000 WHERE seq <= @big_rows;

CREATE TABLE packed (id INT PRIMARY KEY, body TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
INSERT INTO packed SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_5000;

-- Its file has holes on disk; mariadb-backup sends them as zeros.
CREATE TABLE pages (id INT PRIMARY KEY, body TEXT) ENGINE=InnoDB PAGE_COMPRESSED=1;
INSERT INTO pages SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_5000;

CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=InnoDB
  PARTITION BY HASH (id) PARTITIONS 4;
INSERT INTO parts SELECT seq, MD5(seq) FROM seq_1_to_1000;

CREATE TABLE aria_table (id INT PRIMARY KEY, body TEXT, KEY (body(20))) ENGINE=Aria;
INSERT INTO aria_table SELECT seq, REPEAT(SHA1(seq), 10) FROM seq_1_to_5000;

CREATE TABLE myisam_table (id INT PRIMARY KEY, body TEXT, KEY (body(20))) ENGINE=MyISAM;
INSERT INTO myisam_table SELECT seq, REPEAT(SHA1(seq), 10) FROM seq_1_to_5000;

CREATE TABLE csv_table (id INT NOT NULL, v VARCHAR(40) NOT NULL) ENGINE=CSV;
INSERT INTO csv_table SELECT seq, MD5(seq) FROM seq_1_to_100;

CREATE TABLE `odd näme $1` (id INT PRIMARY KEY) ENGINE=InnoDB;
INSERT INTO `odd näme $1` SELECT seq FROM seq_1_to_10;
CREATE TABLE versions (id INT PRIMARY KEY, v VARCHAR(40)) ENGINE=InnoDB WITH SYSTEM VERSIONING;
INSERT INTO versions SELECT seq, MD5(seq) FROM seq_1_to_1000;
DELETE FROM versions WHERE id MOD 3 = 0;
CREATE SEQUENCE numbers ENGINE=InnoDB;
DO NEXTVAL(numbers);
CREATE TABLE empty_table (id INT PRIMARY KEY) ENGINE=InnoDB;

CREATE VIEW paid AS SELECT id, name FROM big WHERE note LIKE '%paid%';

CREATE DATABASE many;
USE many;
DELIMITER //
CREATE PROCEDURE make_tables(IN n INT)
BEGIN
  DECLARE i INT DEFAULT 1;
  WHILE i <= n DO
    EXECUTE IMMEDIATE CONCAT('CREATE TABLE t', i, ' (id INT PRIMARY KEY, v VARCHAR(40)) ENGINE=',
      CASE i MOD 6 WHEN 0 THEN 'Aria' WHEN 1 THEN 'MyISAM' ELSE 'InnoDB' END,
      ' SELECT seq AS id, MD5(seq + ', i, ') AS v FROM seq_1_to_20');
    SET i = i + 1;
  END WHILE;
END //
DELIMITER ;
CALL make_tables(@small_tables);
