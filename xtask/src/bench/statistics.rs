//! What is said about samples: order statistics, and how sure a ratio is.

/// How often the bootstrap draws.
const DRAWS: usize = 2000;

/// The value below which `share` of the samples lie, between neighbours by a straight line. `None` without samples.
pub(super) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "nobody takes 2^53 samples")]
    let place = share.clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and the last index")]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
}

/// The middle.
pub(super) fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// A ratio of medians with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// `median(a) / median(b)`, with an interval by the percentile bootstrap: both sides are drawn anew with replacement,
/// by a generator that always begins alike. `None` without samples or when the divisor is zero.
pub(super) fn ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let value = median(a)? / median(b)?;
    let mut generator = Generator(0x9e37_79b9_7f4a_7c15);
    let mut drawn = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        drawn.push(median(&generator.resample(a))? / median(&generator.resample(b))?);
    }
    let (low, high) = (quantile(&drawn, 0.025)?, quantile(&drawn, 0.975)?);
    [value, low, high].iter().all(|number| number.is_finite()).then_some(Ratio { value, low, high })
}

/// SplitMix64: small, and good enough to draw indices.
#[derive(Debug)]
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn resample(&mut self, samples: &[f64]) -> Vec<f64> {
        let count = samples.len() as u64;
        let index = |drawn: u64| usize::try_from(drawn % count).expect("an index of a slice fits");
        samples.iter().map(|_| samples[index(self.next())]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{median, quantile, ratio};

    #[track_caller]
    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("there are samples");
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn quantiles_of_known_samples() {
        close(median(&[3.0, 1.0, 2.0]), 2.0);
        close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        close(median(&[7.0]), 7.0);
        close(quantile(&[0.0, 10.0], 0.9), 9.0);
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        close(quantile(&hundred, 0.9), 90.0);
        close(quantile(&hundred, 0.0), 0.0);
        close(quantile(&hundred, 1.0), 100.0);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_ratio_knows_how_sure_it_is() {
        let narrow = ratio(&[20.0; 30], &[10.0; 30]).unwrap();
        assert_eq!((narrow.value, narrow.low, narrow.high), (2.0, 2.0, 2.0));
        let spread: Vec<f64> = (0..30).map(|n| 15.0 + f64::from(n % 10)).collect();
        let wide = ratio(&spread, &[10.0; 30]).unwrap();
        assert!(wide.low < wide.value && wide.value < wide.high, "{wide:?}");
        assert!(wide.low > 1.4 && wide.high < 2.5, "{wide:?}");
        assert_eq!(ratio(&spread, &[10.0; 30]), Some(wide), "the draws are repeatable");
    }

    #[test]
    fn a_ratio_needs_samples_and_a_divisor() {
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[1.0], &[]), None);
        assert_eq!(ratio(&[1.0], &[0.0]), None);
    }

    /// The interval of two samples from one distribution holds 1 nearly always: here in at least 85 of 100 draws.
    #[test]
    fn equal_sides_are_told_equal() {
        let mut generator = super::Generator(7);
        #[expect(clippy::cast_precision_loss, reason = "a number below 1000")]
        let mut draw = || (0..25).map(|_| 100.0 + (generator.next() % 1000) as f64 / 10.0).collect::<Vec<f64>>();
        let held = (0..100).filter(|_| ratio(&draw(), &draw()).is_some_and(|r| r.low <= 1.0 && 1.0 <= r.high)).count();
        assert!(held >= 85, "{held} of 100");
    }
}
