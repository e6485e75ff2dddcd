//! The chi-squared distribution, as far as a test of balance needs it.

/// How probable a value of at least `chi_squared` is with so many degrees of freedom: the regularised upper
/// incomplete gamma function Q(k/2, χ²/2), by the series of the lower one (Abramowitz and Stegun, 6.5.29).
/// Exact to ten digits; what is less probable than that is 0.
pub(super) fn probability(chi_squared: f64, degrees: u16) -> f64 {
    let (a, x) = (f64::from(degrees) / 2.0, chi_squared / 2.0);
    if x <= 0.0 {
        return 1.0;
    }
    // Far out the series would overflow, and the answer is 0 to any digit that anyone reads.
    if x > 300.0 + 4.0 * a {
        return 0.0;
    }
    let mut term = 1.0;
    let mut sum = 1.0;
    let mut n = a;
    while term > sum * 1e-16 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    let lower = sum.ln() + a * x.ln() - x - ln_gamma(a + 1.0);
    (1.0 - lower.exp()).max(0.0)
}

/// ln Γ(a) of a whole or half number, down to Γ(1) = 1 or Γ(1/2) = √π.
fn ln_gamma(a: f64) -> f64 {
    let mut ln = 0.0;
    let mut a = a;
    while a > 1.0 {
        a -= 1.0;
        ln += a.ln();
    }
    if a < 1.0 {
        ln += std::f64::consts::PI.sqrt().ln();
    }
    ln
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_values_of_the_tables_are_met() {
        // Degrees of freedom, χ², upper tail: NIST, Engineering Statistics Handbook, 1.3.6.7.4.
        for (degrees, chi_squared, p) in [
            (1, 3.841, 0.05),
            (1, 6.635, 0.01),
            (1, 10.828, 0.001),
            (2, 5.991, 0.05),
            (2, 13.816, 0.001),
            (3, 7.815, 0.05),
            (5, 15.086, 0.01),
            (10, 18.307, 0.05),
            (100, 149.449, 0.001),
        ] {
            let found = probability(chi_squared, degrees);
            assert!(
                (found - p).abs() < p * 0.01,
                "{degrees} {chi_squared}: {found}"
            );
        }
        // With two degrees it is e^(-χ²/2).
        for chi_squared in [0.1, 1.0, 7.0, 30.0] {
            let exact = f64::exp(-chi_squared / 2.0);
            assert!((probability(chi_squared, 2) - exact).abs() < 1e-10);
        }
    }

    #[test]
    fn it_falls_from_one_to_nothing() {
        for degrees in [1, 2, 9, 500] {
            assert!((probability(0.0, degrees) - 1.0).abs() < f64::EPSILON);
            let mut last = 1.0;
            for step in 0..4000_u32 {
                let now = probability(f64::from(step), degrees);
                assert!(
                    (0.0..=last + 1e-9).contains(&now),
                    "{degrees} {step}: {now} after {last}"
                );
                last = now;
            }
            assert!(last < 1e-9, "{degrees}: {last}");
        }
    }
}
