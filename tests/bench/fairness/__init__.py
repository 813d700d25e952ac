"""Shares of tenants that compete for one fleet, measured end to end."""
