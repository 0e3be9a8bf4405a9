"""What several rooms need of statistics: intervals, bootstrap, AUROC, rank correlation, rank tests."""
