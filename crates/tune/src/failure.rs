//! Likelihood that a run fails when single requests do.

/// Returns the likelihood that a run of `requests` fails, when each try of a request fails with the
/// likelihood `rate` whatever happens to the others, and each request has `tries` tries.
///
/// Real failures come together: in an outage, tries fail one after the other. So this is the
/// likelihood for scattered failures only; `Policy` outlasts outages by time.
#[must_use]
pub fn run_failure(requests: u64, rate: f64, tries: u32) -> f64 {
    let request = rate.clamp(0.0, 1.0).powf(f64::from(tries.max(1)));
    if request >= 1.0 {
        return if requests == 0 { 0.0 } else { 1.0 };
    }
    // 1 - (1 - request)^requests, without the cancellation of numbers near 1.
    -(requests as f64 * (-request).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn retries_are_what_makes_long_runs_possible() {
        // 8 TiB in objects of 10 MiB, where one request in 10,000 fails.
        let once = run_failure(838_861, 1e-4, 1);
        let with_retries = run_failure(838_861, 1e-4, 11);
        assert!(once > 0.999_999, "{once}");
        assert!(with_retries > 0.0 && with_retries < 1e-30, "{with_retries}");
        assert!((run_failure(2, 0.5, 1) - 0.75).abs() < 1e-12);
        assert!((run_failure(1, 0.1, 2) - 0.01).abs() < 1e-12);
        assert!((run_failure(10, 1.0, 5) - 1.0).abs() < 1e-12);
        assert!(run_failure(0, 1.0, 5).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn it_is_a_likelihood_that_falls_with_tries(
            requests in 0_u64..1 << 40, rate in 0.0..=1.0_f64, tries in 1_u32..20,
        ) {
            let one = run_failure(requests, rate, tries);
            let more = run_failure(requests, rate, tries + 1);
            prop_assert!((0.0..=1.0).contains(&one));
            prop_assert!(more <= one);
            prop_assert!(run_failure(requests + 1, rate, tries) >= one);
        }
    }
}
