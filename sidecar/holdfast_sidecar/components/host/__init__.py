"""The machine under the GPUs: CPU, memory, storage, clock, temperature."""
