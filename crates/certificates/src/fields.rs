//! The few fields of a certificate (RFC 5280, section 4.1) that the verifying library does not
//! expose: for certificates of version 1, which the library rejects although `openssl x509 -req`
//! before OpenSSL 3.2 creates them by default; for the common name; and for the properties of an authority.
//!
//! Read here and not with `x509-parser`: that crate and its parsers would be a dozen more crates in
//! a program that runs beside the server on every node, to replace one small reader of DER.

use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use std::time::Duration;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION_TAG: u8 = 0xa0;
/// issuerUniqueID and subjectUniqueID.
const UNIQUE_IDS: [u8; 2] = [0x81, 0x82];
const EXTENSIONS_TAG: u8 = 0xa3;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// id-ce-keyUsage, 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 29, 15];
/// id-ce-subjectAltName, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];
/// A host name among them: dNSName.
const HOST_NAME: u8 = 0x82;
/// id-ce-basicConstraints, 2.5.29.19.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 29, 19];
/// id-ce-nameConstraints, 2.5.29.30.
const NAME_CONSTRAINTS: &[u8] = &[0x55, 29, 30];
/// rsaEncryption, 1.2.840.113549.1.1.1.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// The TLS library neither signs with shorter keys nor verifies their signatures.
const MIN_RSA_BITS: usize = 2048;
/// keyCertSign in the first byte of a key usage.
const CERT_SIGN: u8 = 0x04;

/// Slices of one certificate.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The signed part, with its tag and length.
    pub(crate) signed: &'a [u8],
    /// Algorithm identifier of the signature, without tag and length.
    pub(crate) algorithm: &'a [u8],
    /// The signature's bits.
    pub(crate) signature: &'a [u8],
    /// Issuer, without tag and length.
    pub(crate) issuer: &'a [u8],
    /// Subject, without tag and length.
    pub(crate) subject: &'a [u8],
    /// Public key, with tag and length.
    pub(crate) public_key: &'a [u8],
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    is_version_1: bool,
    /// Bytes that follow the public key.
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Returns `None` if this is not a certificate.
    #[must_use]
    pub fn read(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let mut outer = Der(certificate);
        let mut body = Der(outer.take(SEQUENCE)?);
        outer.end()?;
        let (signed, inside) = body.whole(SEQUENCE)?;
        let algorithm = body.take(SEQUENCE)?;
        let signature = bits(body.take(BIT_STRING)?)?;
        body.end()?;

        let mut inside = Der(inside);
        let mut is_version_1 = true;
        if inside.peek() == Some(VERSION_TAG) {
            is_version_1 = Der(inside.take(VERSION_TAG)?).take(INTEGER)? == [0];
        }
        inside.take(INTEGER)?;
        if inside.take(SEQUENCE)? != algorithm {
            return None;
        }
        let issuer = inside.take(SEQUENCE)?;
        let mut validity = Der(inside.take(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        validity.end()?;
        let subject = inside.take(SEQUENCE)?;
        let (public_key, _) = inside.whole(SEQUENCE)?;
        Some(Self {
            signed,
            algorithm,
            signature,
            issuer,
            subject,
            public_key,
            not_before,
            not_after,
            is_version_1,
            rest: inside.0,
        })
    }

    /// Like [`read`](Self::read), for a handshake.
    pub(crate) fn of(certificate: &'a CertificateDer<'_>) -> Result<Self, CertificateError> {
        Self::read(certificate).ok_or(CertificateError::BadEncoding)
    }

    /// Returns the number of bits of an RSA key that is too short for TLS.
    #[must_use]
    pub fn short_rsa(&self) -> Option<usize> {
        let (algorithm, key) = public_key_parts(Der(self.public_key).take(SEQUENCE)?)?;
        let modulus = Der(Der(key).take(SEQUENCE)?).take(INTEGER)?;
        let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
        let unused = modulus.first()?.leading_zeros() as usize;
        let bits = (modulus.len() * 8).checked_sub(unused)?;
        (Der(algorithm).take(OID)? == RSA && bits < MIN_RSA_BITS).then_some(bits)
    }

    /// The public key, with its algorithm.
    #[must_use]
    pub fn public_key(&self) -> SubjectPublicKeyInfoDer<'a> {
        SubjectPublicKeyInfoDer::from(self.public_key)
    }

    /// Returns whether it may sign others, as `openssl verify` judges: its basic constraints allow
    /// it, and its key usage does not forbid it (RFC 5280, 4.2.1.3 and 4.2.1.9). Without basic
    /// constraints it may only if its key usage allows it, or if it is of version 1 and
    /// self-signed.
    #[must_use]
    pub fn is_authority(&self) -> bool {
        match self.signs_others() {
            Some((_, Some(false))) | None => false,
            Some((Some(constraints), _)) => constraints,
            Some((None, Some(true))) => true,
            Some((None, None)) => self.is_version_1 && self.issuer == self.subject,
        }
    }

    /// Returns what basic constraints and key usage say, if present; `None` if they are malformed.
    fn signs_others(&self) -> Option<(Option<bool>, Option<bool>)> {
        let (mut constraints, mut usage) = (None, None);
        self.each_extension(|oid, mut value| {
            match oid {
                BASIC_CONSTRAINTS => {
                    let mut fields = Der(value.take(SEQUENCE)?);
                    let is_ca = fields.peek() == Some(BOOLEAN) && fields.take(BOOLEAN)? != [0];
                    constraints = Some(is_ca);
                }
                KEY_USAGE => {
                    let first = value.take(BIT_STRING)?.get(1).copied().unwrap_or(0);
                    usage = Some(first & CERT_SIGN != 0);
                }
                _ => {}
            }
            Some(())
        })?;
        Some((constraints, usage))
    }

    /// Returns whether it limits the names of what it signs (RFC 5280, 4.2.1.10), or is malformed.
    pub(crate) fn limits_names(&self) -> bool {
        self.each_extension(|oid, _| (oid != NAME_CONSTRAINTS).then_some(())).is_none()
    }

    /// Returns whether there are host names among its alternative names, of whatever form, or it is
    /// malformed.
    pub(crate) fn lists_hosts(&self) -> bool {
        let without = self.each_extension(|oid, mut value| {
            if oid == ALTERNATIVE_NAMES {
                let mut names = Der(value.take(SEQUENCE)?);
                while !names.0.is_empty() {
                    names.any().filter(|(tag, _)| *tag != HOST_NAME)?;
                }
            }
            Some(())
        });
        without.is_none()
    }

    /// Returns whether it has extensions, or is malformed.
    pub(crate) fn has_extensions(&self) -> bool {
        self.each_extension(|_, _| None).is_none()
    }

    /// Gives the identifier and value of each extension to `see`. Returns `None` if they are
    /// malformed, or if `see` does.
    fn each_extension(&self, mut see: impl FnMut(&[u8], Der<'a>) -> Option<()>) -> Option<()> {
        let mut rest = Der(self.rest);
        for tag in UNIQUE_IDS {
            if rest.peek() == Some(tag) {
                rest.take(tag)?;
            }
        }
        if rest.peek().is_none() {
            return Some(());
        }
        let mut extensions = Der(Der(rest.take(EXTENSIONS_TAG)?).take(SEQUENCE)?);
        while !extensions.0.is_empty() {
            let mut extension = Der(extensions.take(SEQUENCE)?);
            let oid = extension.take(OID)?;
            if extension.peek() == Some(BOOLEAN) {
                extension.take(BOOLEAN)?;
            }
            see(oid, Der(extension.take(OCTET_STRING)?))?;
        }
        Some(())
    }

    /// The last common name of the subject, which is the most specific.
    #[must_use]
    pub fn common_name(&self) -> Option<&'a str> {
        let mut subject = Der(self.subject);
        let mut found = None;
        while !subject.0.is_empty() {
            let mut set = Der(subject.take(SET)?);
            while !set.0.is_empty() {
                let mut pair = Der(set.take(SEQUENCE)?);
                if pair.take(OID)? == COMMON_NAME {
                    let (_, text) = pair.any()?;
                    found = std::str::from_utf8(text).ok();
                }
            }
        }
        found
    }
}

/// Returns algorithm identifier and key bits of a public key, given without its tag and length.
pub(crate) fn public_key_parts(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Der(spki);
    let algorithm = fields.take(SEQUENCE)?;
    let key = bits(fields.take(BIT_STRING)?)?;
    fields.end()?;
    Some((algorithm, key))
}

/// Returns the content of a bit string of whole bytes.
fn bits(content: &[u8]) -> Option<&[u8]> {
    match content {
        [0, bits @ ..] => Some(bits),
        _ => None,
    }
}

/// Reader of DER values, front to back.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Reads tag and content of the next value, whose length must be in its shortest form.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let len = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x83 => {
                let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                let len = digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit));
                let shortest = if digits.len() == 1 { 0x80 } else { 1 << (8 * (digits.len() - 1)) };
                if len < shortest {
                    return None;
                }
                len
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if self.peek()? != wanted {
            return None;
        }
        self.any().map(|(_, content)| content)
    }

    /// Reads the next value: with its tag and length, and its content.
    fn whole(&mut self, wanted: u8) -> Option<(&'a [u8], &'a [u8])> {
        let before = self.0;
        let content = self.take(wanted)?;
        Some((before.get(..before.len() - self.0.len())?, content))
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn time(&mut self) -> Option<UnixTime> {
        let (tag, text) = self.any()?;
        let number = |digits: &[u8]| {
            digits.iter().try_fold(0_u64, |n, c| {
                char::from(*c).to_digit(10).map(|digit| n * 10 + u64::from(digit))
            })
        };
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year)?;
                // RFC 5280, 4.1.2.5.1: 50 to 99 belong to the last century.
                (if year >= 50 { 1900 + year } else { 2000 + year }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        let [m1, m2, d1, d2, h1, h2, n1, n2, s1, s2, b'Z'] = rest else { return None };
        let (month, day) = (number(&[*m1, *m2])?, number(&[*d1, *d2])?);
        let (hour, minute) = (number(&[*h1, *h2])?, number(&[*n1, *n2])?);
        let second = number(&[*s1, *s2])?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
            return None;
        }
        // A date before 1970 counts as 1970, which makes no difference here.
        let days = days_since_1970(year, month, day).unwrap_or(0);
        let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second.min(60);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Counts days in the Gregorian calendar, with years that begin in March.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) =
        if month <= 2 { (year.checked_sub(1)?, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec!["db1.example".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "galera node 1");
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn fields_of_a_certificate() {
        let certificate = sample();
        let fields = Fields::read(&certificate).unwrap();
        assert_eq!(fields.common_name(), Some("galera node 1"));
        assert_eq!(fields.issuer, fields.subject);
        // `date -u -d 2024-02-29 +%s`, `date -u -d 2049-12-31 +%s`
        assert_eq!(fields.not_before.as_secs(), 1_709_164_800);
        assert_eq!(fields.not_after.as_secs(), 2_524_521_600);
        let spki = Der(fields.public_key).take(SEQUENCE).unwrap();
        let (algorithm, key) = public_key_parts(spki).unwrap();
        let hit = rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .all
            .iter()
            .filter(|a| {
                a.public_key_alg_id().as_ref() == algorithm
                    && a.signature_alg_id().as_ref() == fields.algorithm
            })
            .any(|a| a.verify_signature(key, fields.signed, fields.signature).is_ok());
        assert!(hit, "it is signed by itself");
    }

    #[test]
    fn an_authority_says_so_or_is_old_and_signs_itself() {
        use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose};
        let is = |is_ca: IsCa, usages: &[KeyUsagePurpose]| {
            let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
            (params.is_ca, params.key_usages) = (is_ca, usages.to_vec());
            let key = rcgen::KeyPair::generate().unwrap();
            Fields::read(params.self_signed(&key).unwrap().der()).unwrap().is_authority()
        };
        let (ca, sign) = (IsCa::Ca(BasicConstraints::Unconstrained), KeyUsagePurpose::KeyCertSign);
        let other = KeyUsagePurpose::DigitalSignature;
        assert!(is(ca, &[]) && is(ca, &[sign, other]));
        assert!(is(IsCa::Ca(BasicConstraints::Constrained(0)), &[]));
        assert!(!is(ca, &[other]), "its key may not sign certificates");
        assert!(!is(IsCa::ExplicitNoCa, &[]) && !is(IsCa::ExplicitNoCa, &[sign]));
        assert!(!is(IsCa::NoCa, &[]) && is(IsCa::NoCa, &[sign]));
        let certificate = sample();
        let fields = Fields::read(&certificate).unwrap();
        assert!(!Fields { rest: &[], ..fields }.is_authority());
        let old = Fields { rest: &[], is_version_1: true, ..fields };
        assert!(old.is_authority() && !Fields { subject: b"another", ..old }.is_authority());
        assert!(!Fields { rest: &[0xa3, 0x80], ..old }.is_authority(), "damaged");
    }

    #[test]
    fn days() {
        assert_eq!(days_since_1970(1970, 1, 1), Some(0));
        assert_eq!(days_since_1970(2000, 3, 1), Some(11_017));
        assert_eq!(days_since_1970(1969, 12, 31), None);
        assert_eq!(days_since_1970(0, 1, 1), None);
    }

    proptest! {
        #[test]
        fn damage_does_not_panic(at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
            let mut bytes = sample().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = with;
            let cut = cut.index(bytes.len() + 1);
            for bytes in [&bytes[..], &bytes[..cut]] {
                let certificate = CertificateDer::from(bytes);
                if let Some(fields) = Fields::read(&certificate) {
                    let _ = (fields.common_name(), fields.is_authority(), fields.lists_hosts());
                }
            }
        }
    }
}
