"""What each point adds to a complete statistic: weights, clusters, strata and groups are sums over points.

A pair (i, j) that counts has the weight ω_ij = w_i w_j. Each point learns two sums over the points j that it is paired
with, h_i = Σ_j w_j h_ij and p_i = Σ_j w_j. With Ω = Σ ω_ij over all pairs, θ = Σ ω_ij h_ij / Ω, and

    ψ_i = w_i (h_i - θ p_i) / Ω,      Σ ψ_i = 0,

is the influence of point i on θ: its derivative by the log of w_i.
"""
