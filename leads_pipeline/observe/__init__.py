"""What somebody is told: findings, alerts, channels and figures."""
