/* A stand-in for HyperPod's SPANK plugin: `srun --auto-resume=0|1` is an option, here as there, and sbatch has none.
 * It only takes the option; that a job starts again after its node failed is Slurm's own requeue. */
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(auto_resume, 1);

static int check(int value, const char *argument, int remote) {
	return argument && (!strcmp(argument, "0") || !strcmp(argument, "1")) ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

static struct spank_option option = {
	"auto-resume", "0|1", "Start the job again when one of its nodes fails.", 1, 0, check,
};

int slurm_spank_init(spank_t spank, int count, char **arguments) {
	spank_context_t context = spank_context();
	if (context == S_CTX_LOCAL || context == S_CTX_REMOTE)
		return spank_option_register(spank, &option);
	return ESPANK_SUCCESS;
}
