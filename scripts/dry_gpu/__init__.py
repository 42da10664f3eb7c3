"""Runs the CUDA branches of nmt on FakeTensors, without a GPU, and counts what they would launch."""
