"""The building blocks of monitors; nothing here is a monitor.

- which rows count: class_rows; rows in bounded memory: reservoir, row_sample, row_blocks
- statistics: moments, covariance, clusters, projection, head; search: nearest
- probabilities: exponentials, uncertainty
- a step of the inputs: input_step; the networks of Reconstruction: alocc
- one stream for several monitors: joint_fit
- parents of monitors that share their fit or how they are stored: neighbour_bank, user_code
"""
