# SPDX-License-Identifier: Apache-2.0
"""What became of a job, why it waits and what it used, in words: for `muster-job` and for mails."""
