//! The program and its options with real servers for Google's and Azure's interfaces.

use xb_testkit::command::Cmd;
use xb_testkit::daemon::{Daemon, Scratch};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::ports::free_port;
use xb_testkit::stream::small_backup;
use xb_testkit::{azure, s3};

const MIB: usize = 1 << 20;

fn xbcloud(command: &str, options: &[String]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args([command, "--quiet", "--max-backoff=50"])
        .args(options)
}

/// Stores, lists, reads back and removes a backup; `options` and `name` give the place.
fn there_and_back(options: &[String], name: &str) {
    // One multipart object, because it does not fit into the memory, and a short one.
    let stream = small_backup(1, 40 * MIB);
    let sizes = ["--chunk-size=32M".to_owned(), "--memory=32M".to_owned()];
    let put = xbcloud("put", &[&sizes, options, &[name.to_owned()]].concat());
    let _ = put.stdin_bytes(stream.clone()).run().expect(0);
    let place = [options, &[name.to_owned()]].concat();
    assert!(xbcloud("get", &place).run().expect(0).stdout == stream);
    let _ = xbcloud("delete", &[&["--yes".to_owned()], &place[..]].concat()).run().expect(0);
    let _ = xbcloud("get", &place).run().expect_failure();
}

#[test]
fn azure_by_url_and_by_the_stock_options() {
    let container = azure::container();
    let proxy = Proxy::start(
        container.address(),
        vec![Rule::new("PUT", "comp=block&", Action::answer(503)).every(3)],
    );
    let account = [
        format!("--azure-storage-account={}", azure::ACCOUNT),
        format!("--azure-access-key={}", azure::KEY),
        format!("--azure-endpoint={}/{}", proxy.endpoint(), azure::ACCOUNT),
    ];
    there_and_back(&account, &format!("azure://{}/backups/monday", container.name()));
    assert!(proxy.seen().iter().any(|seen| seen.action.is_some()), "no blocks were sent");
    let stock =
        ["--storage=AZURE".to_owned(), format!("--azure-container-name={}", container.name())];
    there_and_back(&[&account[..], &stock].concat(), "backups/monday");
}

/// Azure has no list of unfinished uploads, so `gc` hears the store's clock later than elsewhere.
#[test]
fn gc_goes_by_the_clock_of_azure() {
    let container = azure::container();
    let unsure = Rule::new("PUT", "/.xb-catalog/dead", Action::answer(503));
    let proxy = Proxy::start(container.address(), vec![unsure]);
    let account = [
        format!("--azure-storage-account={}", azure::ACCOUNT),
        format!("--azure-access-key={}", azure::KEY),
        format!("--azure-endpoint={}/{}", proxy.endpoint(), azure::ACCOUNT),
    ];
    let root = format!("azure://{}/backups", container.name());
    let place = [&account[..], &["--max-retries=0".to_owned(), format!("{root}/dead")]].concat();
    let _ = xbcloud("put", &place).stdin_bytes(small_backup(1, MIB)).run().expect_failure();
    let gc = [&["--older-than=24".to_owned(), "--json".to_owned()], &account[..], &[root]].concat();
    let dead = |rules: Vec<Rule>| {
        proxy.set_rules(rules);
        let found = xbcloud("gc", &gc).run().expect(0).stdout;
        let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
        found["dead"].as_array().unwrap().len()
    };
    assert_eq!(dead(Vec::new()), 0);
    let hour = 3600;
    assert_eq!(dead(vec![Rule::new("", "", Action::Ahead(20 * hour))]), 0);
    assert_eq!(dead(vec![Rule::new("", "", Action::Ahead(28 * hour))]), 1);
}

#[test]
fn google_natively_and_by_the_stock_options() {
    let bucket = s3::open_bucket();
    let proxy = Proxy::google(
        bucket.address(),
        vec![Rule::new("PUT", "partNumber", Action::answer(503)).every(3)],
    );
    let scratch = Scratch::new();
    let key = scratch.join("key.json");
    let json = format!(
        r#"{{"gcs_base_url":"{}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#,
        proxy.endpoint()
    );
    std::fs::write(&key, json).unwrap();
    let file = [format!("--google-credentials-file={}", key.display())];
    there_and_back(&file, &format!("gs://{}/backups/monday", bucket.name()));
    // By the stock tool's name, on the command line and in its option file.
    let by_stock_name = format!("google-service-account-file={}", key.display());
    there_and_back(&[format!("--{by_stock_name}")], &format!("gs://{}/tuesday", bucket.name()));
    let options = scratch.join("stock.cnf");
    std::fs::write(&options, format!("[xbcloud]\n{by_stock_name}\n")).unwrap();
    let list = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["list", &format!("--defaults-file={}", options.display())])
        .arg(format!("gs://{}", bucket.name()));
    let _ = list.run().expect(0);
    assert!(proxy.seen().iter().any(|seen| seen.action.is_some()), "no parts were sent");

    let hmac = [
        "--storage=google".to_owned(),
        format!("--google-bucket={}", bucket.name()),
        format!("--google-endpoint={}", bucket.endpoint()),
        format!("--google-access-key={}", s3::ACCESS_KEY),
        format!("--google-secret-key={}", s3::SECRET_KEY),
    ];
    there_and_back(&hmac, "backups/monday");
}

/// Keys and place from the shared AWS files, although the environment holds other keys.
#[test]
fn a_profile_of_the_aws_tools() {
    let bucket = s3::bucket();
    let scratch = Scratch::new();
    let (credentials, config) = (scratch.join("credentials"), scratch.join("config"));
    let (id, secret) = (s3::ACCESS_KEY, s3::SECRET_KEY);
    let keys = format!("[night]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    std::fs::write(&credentials, keys).unwrap();
    let place =
        format!("[profile night]\nregion = {}\nendpoint_url = {}\n", s3::REGION, bucket.endpoint());
    std::fs::write(&config, place).unwrap();
    let list = |options: &[String]| {
        xbcloud("list", options)
            .env("AWS_SHARED_CREDENTIALS_FILE", &credentials)
            .env("AWS_CONFIG_FILE", &config)
            .env("AWS_ACCESS_KEY_ID", "wrong")
            .env("AWS_SECRET_ACCESS_KEY", "wrong")
            .run()
    };
    let _ = list(&["--aws-profile=night".to_owned(), bucket.url("a")]).expect(0);
    let ran = list(&["--aws-profile=nobody".to_owned(), bucket.url("a")]).expect_failure();
    assert!(ran.stderr_text().contains("profile `nobody` is neither in"), "{ran:?}");
}

/// Error output of a `list` that must fail; by default without retries.
fn list_fails(endpoint: &str, options: &[&str], env: &[(&str, &str)]) -> String {
    let mut list =
        xbcloud("list", &s3::options_for(endpoint)).args(["--max-retries=0"]).args(options);
    for (name, value) in env {
        list = list.env(name, value);
    }
    list.arg("s3://bucket/a").run().expect_failure().stderr_text()
}

#[test]
fn proxies_come_from_the_environment() {
    let bucket = s3::bucket();
    let nobody = [("HTTP_PROXY", "http://127.0.0.1:1"), ("http_proxy", "http://127.0.0.1:1")];
    let said = list_fails(&bucket.endpoint(), &[], &nobody);
    assert!(said.contains("cannot connect"), "{said}");
    let around = [&nobody[..], &[("NO_PROXY", "127.0.0.1")]].concat();
    let said = list_fails(&bucket.endpoint(), &[], &around);
    assert!(said.contains("NoSuchBucket"), "{said}");
}

/// An untrusted certificate is refused at once; its authority can be given.
#[test]
fn certificates_are_checked() {
    let scratch = Scratch::new();
    let (key, certificate) = (scratch.join("key.pem"), scratch.join("cert.pem"));
    let paths = [key.display().to_string(), certificate.display().to_string()];
    let openssl = xb_testkit::tools::find("openssl");
    let made = std::process::Command::new(&openssl)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", &paths[0], "-out", &paths[1]])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let port = free_port();
    let port = port.to_string();
    let args =
        ["s_server", "-accept", &port, "-key", &paths[0], "-cert", &paths[1], "-www", "-quiet"];
    let server = Daemon::start(&openssl, &args.map(str::to_owned), &scratch.join("log"));
    let address = format!("127.0.0.1:{port}");
    let up = || std::net::TcpStream::connect(&address).is_ok();
    server.wait_ready("openssl s_server", std::time::Duration::from_secs(30), up);

    let endpoint = format!("https://{address}");
    // Retries would not help, and none are made.
    let said = list_fails(&endpoint, &["--max-retries=5"], &[]);
    assert!(said.contains("cannot trust") && said.contains("--cacert"), "{said}");
    assert!(!said.contains("tries"), "{said}");
    // The server's pages are not a listing, but its identity is accepted.
    for option in [&*format!("--cacert={}", paths[1]), "--insecure"] {
        let said = list_fails(&endpoint, &[option], &[]);
        assert!(!said.contains("cannot trust"), "{option}: {said}");
    }
}
