"""What monitors are built from; nothing in here is a monitor.

Which rows count (class_rows), rows in bounded memory (reservoir, row_sample, row_blocks), statistics
(moments, covariance, clusters, projection, head), searches (nearest), what to make of probabilities
(exponentials, uncertainty), steps and networks (input_step, alocc), one stream for several
monitors (joint_fit), and the parents of monitors that share their fit or their storage (neighbour_bank, user_code).
"""
